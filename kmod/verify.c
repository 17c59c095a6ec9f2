// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sums that are verified: core/linear_check.h for the blocks of one socket.  The key is made of the job's and of nonces of all
 * ranks, which are summed before the first tensor; nothing else travels before they are here.
 */
#include <linux/random.h>
#include <linux/slab.h>

#include "tensor.h"

static u64 weigh(const void *elements, const u32 *weights, u32 count, int is_signed)
{
	return inagg_check_dot(elements, weights, count, is_signed);
}

/**
 * inagg_least_cells() - of a joined socket's ring
 *
 * What control blocks carry stays in its cells until all of them are back (inagg_may_assign()), so those of the largest sum
 * that guesses must fit.
 */
u32 inagg_least_cells(const struct inagg_sock *isk)
{
	return isk->verify.wanted ? max(isk->job.control_slots / 2, 4U) : 4;
}

/** inagg_verifier_bytes() - what inagg_verifier_alloc() takes */
u64 inagg_verifier_bytes(const struct inagg_sock *isk)
{
	return isk->verify.wanted ? isk->job.elements * sizeof(u32) : 0;
}

/** inagg_verifier_alloc() - memory for the weights of a joined socket; may sleep; 0 or -ENOMEM */
int inagg_verifier_alloc(struct inagg_sock *isk)
{
	if (!isk->verify.wanted)
		return 0;
	isk->verify.weights = kvcalloc(isk->job.elements, sizeof(u32), INAGG_GFP);
	return isk->verify.weights ? 0 : -ENOMEM;
}

void inagg_verifier_free(struct inagg_sock *isk)
{
	kvfree_sensitive(isk->verify.weights, inagg_verifier_bytes(isk));
	isk->verify.weights = NULL;
}

/** inagg_verifier_forget() - the next tensor is the first with another key; @isk is locked, and nothing is under way */
void inagg_verifier_forget(struct inagg_sock *isk)
{
	isk->verify.asked = isk->verify.begun = false;
	isk->verify.calls = 0;
}

/**
 * inagg_exchange_new() - a tensor that brings the nonces of all ranks to each
 * @isk: a joined socket
 * @exchange: becomes the tensor, with its memory
 *
 * A maximum: no rank without a key has one for its first tensor, and takes this for it.  May sleep.  0 or an errno.
 */
int inagg_exchange_new(struct inagg_sock *isk, struct inagg_tensor **exchange)
{
	struct inagg_verifier *v = &isk->verify;
	struct inagg_tensor *t;
	int error, i;

	t = inagg_companion(isk, isk->job.size * sizeof(v->own), INAGG_WIRE_INT32 << 4 | INAGG_WIRE_MAX);
	if (!t)
		return -ENOMEM;
	error = inagg_alloc_own(isk, t);
	if (error) {
		kfree(t);
		return error;
	}
	t->sum = t;
	for (i = 0; i < INAGG_CHECK_NONCE_WORDS; i++)
		v->own[i] = (u32)get_random_u64() & S32_MAX;
	memcpy(t->own + isk->job.rank * sizeof(v->own), v->own, sizeof(v->own));
	*exchange = t;
	return 0;
}

/**
 * inagg_exchange_done() - the nonces are here; @isk is locked
 *
 * Whatever came for our own, it is used: then nobody can have us use an old key.
 */
void inagg_exchange_done(struct inagg_sock *isk)
{
	struct inagg_verifier *v = &isk->verify;
	const struct inagg_job_config *job = &isk->job;
	u32 *nonces = (u32 *)v->exchange->own, i;
	struct inagg_mac_key weights;

	memcpy(nonces + job->rank * INAGG_CHECK_NONCE_WORDS, v->own, sizeof(v->own));
	weights = inagg_check_derive(&v->key, INAGG_CHECK_WEIGHTS, job->job, nonces, job->size);
	for (i = 0; i < job->elements; i++)
		v->weights[i] = inagg_check_weight(&weights, i);
	memzero_explicit(&weights, sizeof(weights));
	v->check = (struct inagg_check){
		.masks = inagg_check_derive(&v->key, INAGG_CHECK_MASKS, job->job, nonces, job->size),
		.weights = v->weights,
		.dot = weigh,
		.elements = job->elements,
		.rank = job->rank,
		.size = job->size,
	};
	v->exchange = NULL;
	v->begun = true;
}

/**
 * inagg_may_assign() - may the data blocks of a tensor be sealed, and so have numbers?
 *
 * Not without a key.  And nothing is sealed twice: results would take the place of what the blocks of a wrong guess carry,
 * so all of those must be back.
 */
bool inagg_may_assign(const struct inagg_sock *isk, const struct inagg_tensor *t)
{
	if (!isk->verify.wanted || t == isk->verify.exchange)
		return true;
	return isk->verify.begun && (t->guessed || !t->controls_left);
}

/** inagg_is_sealed() - do the tensor's blocks of this stream end in a check? */
bool inagg_is_sealed(const struct inagg_sock *isk, const struct inagg_tensor *t, int stream)
{
	if (!isk->verify.wanted)
		return false;
	return stream == INAGG_DATA ? t->sealed : isk->job.algorithm != INAGG_TRIO;
}

static struct inagg_check_block identify(const struct inagg_tensor *t, int stream, u32 index)
{
	return (struct inagg_check_block){
		.call = t->call,
		.context = t->context,
		.index = index,
		.phase = stream == INAGG_DATA ? t->phase : 0,
	};
}

static enum inagg_check_scale scale_of(const struct inagg_tensor *t, int stream)
{
	if (stream == INAGG_DATA)
		return t->controls ? INAGG_CHECK_AGREED : INAGG_CHECK_UNSCALED;
	return t->guesses ? INAGG_CHECK_GUESSED : INAGG_CHECK_UNSCALED;
}

/** inagg_seal() - end this rank's part of a block with its check; @isk is locked */
void inagg_seal(const struct inagg_sock *isk, const struct inagg_tensor *t, int stream, u32 index,
		const struct inagg_block_meta *meta, void *payload)
{
	struct inagg_check_block block = identify(t, stream, index);

	inagg_check_seal(&isk->verify.check, &block, meta, payload,
			 inagg_check_fits(scale_of(t, stream), t->exponent, meta));
}

/* With trio some may be missing, but not everywhere. */
static bool has_all_it_must(const struct inagg_sock *isk, const struct inagg_tensor *t, const struct inagg_block_meta *meta)
{
	bool waits = t->whole || !(isk->set.expiry_us || isk->set.quorum);

	return isk->set.exclude_ms || !waits || meta->contributors == inagg_all_ranks(isk->job.size);
}

/** inagg_holds() - is a result the sum of what its ranks have sealed?  @meta->saturated is true, too; @isk is locked */
bool inagg_holds(const struct inagg_sock *isk, const struct inagg_tensor *t, int stream, u32 index,
		 struct inagg_block_meta *meta, const void *payload)
{
	struct inagg_check_block block = identify(t, stream, index);

	return has_all_it_must(isk, t, meta) &&
	       inagg_check_holds(&isk->verify.check, &block, meta, payload, scale_of(t, stream));
}
