# SPDX-License-Identifier: BSD-2-Clause
"""A multilayer perceptron with backpropagation written out, and the data it learns."""
import numpy as np
from sklearn.datasets import load_digits

LAYERS = (64, 128, 64, 10)
EPOCHS = 20
BATCH = 64  # of all workers together
RATE = 0.05
MOMENTUM = 0.9
TEST_IMAGES = 357  # leaves 1,440 to learn from
SEED = 2


def load_data():
    """Images and labels to learn from, images and labels to test with: the same in every process."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(SEED).permutation(len(labels))
    images = (images[order] / 16).astype(np.float32)
    labels = labels[order]
    return images[TEST_IMAGES:], labels[TEST_IMAGES:], images[:TEST_IMAGES], labels[:TEST_IMAGES]


def batches(images, labels, epoch):
    """The epoch's global batches, in an order that all processes agree on."""
    order = np.random.default_rng([SEED, epoch]).permutation(len(labels))
    for start in range(0, len(order) - BATCH + 1, BATCH):
        chosen = order[start:start + BATCH]
        yield images[chosen], labels[chosen]


class Network:
    """Weights lie in one flat vector, so that one allreduce carries the whole gradient."""

    def __init__(self, seed):
        shapes = [shape for fan_in, fan_out in zip(LAYERS, LAYERS[1:]) for shape in ((fan_in, fan_out), (fan_out,))]
        self.weights = np.zeros(sum(int(np.prod(shape)) for shape in shapes), np.float32)
        self.velocity = np.zeros_like(self.weights)
        self.shapes = shapes
        generator = np.random.default_rng(seed)
        for parameter in self.views(self.weights):
            if parameter.ndim == 2:  # He et al.: keeps the variance through rectified layers
                parameter[:] = generator.normal(0, np.sqrt(2 / len(parameter)), parameter.shape)

    def views(self, vector):
        """Matrices and biases of all layers as views of a flat vector."""
        views, at = [], 0
        for shape in self.shapes:
            size = int(np.prod(shape))
            views.append(vector[at:at + size].reshape(shape))
            at += size
        return views

    def forward(self, images):
        """Activations of every layer; the last are logits."""
        parameters = self.views(self.weights)
        activations = [images]
        for layer in range(0, len(parameters), 2):
            value = activations[-1] @ parameters[layer] + parameters[layer + 1]
            activations.append(value if layer == len(parameters) - 2 else np.maximum(value, 0))
        return activations

    def gradient(self, images, labels):
        """Part of the gradient, and of the mean loss over a global batch, that these images contribute."""
        activations = self.forward(images)
        probabilities = softmax(activations[-1])
        rows = np.arange(len(labels))
        loss = -np.log(probabilities[rows, labels] + 1e-12).sum() / BATCH
        error = probabilities
        error[rows, labels] -= 1
        error /= BATCH
        gradient = np.empty_like(self.weights)
        views, parameters = self.views(gradient), self.views(self.weights)
        for layer in range(len(parameters) - 2, -1, -2):
            inputs = activations[layer // 2]
            views[layer][:] = inputs.T @ error
            views[layer + 1][:] = error.sum(axis=0)
            if layer:
                error = (error @ parameters[layer].T) * (inputs > 0)
        return gradient, float(loss)

    def step(self, gradient):
        """Gradient descent with momentum."""
        self.velocity = np.float32(MOMENTUM) * self.velocity - np.float32(RATE) * gradient
        self.weights += self.velocity

    def accuracy(self, images, labels):
        """Fraction of images that are recognised."""
        return float((self.forward(images)[-1].argmax(axis=1) == labels).mean())


def softmax(logits):
    """Rows of probabilities."""
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def train_alone():
    """The reference: one process, no network; a list of (loss, accuracy) by epoch."""
    images, labels, test_images, test_labels = load_data()
    network = Network(SEED)
    curve = []
    for epoch in range(EPOCHS):
        losses = []
        for batch_images, batch_labels in batches(images, labels, epoch):
            gradient, loss = network.gradient(batch_images, batch_labels)
            network.step(gradient)
            losses.append(loss)
        curve.append((float(np.mean(losses)), network.accuracy(test_images, test_labels)))
    return curve
