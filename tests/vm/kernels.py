# SPDX-License-Identifier: BSD-2-Clause
"""Debian's kernels: image, modules and headers of one version, unpacked in a cache folder.

The packages come from the Debian mirror that this machine already uses, through an apt configuration and
state of its own under the cache folder: the machine's sources and its packages stay as they are.
"""

import fcntl
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

APT_LIMIT = 100  # seconds
COMPILER = "gcc-12"  # Debian 12's
LIBRARIES = ["libc6", "libelf1t64", "libzstd1", "zlib1g"]  # of a later Debian, for its kernel's build tools
LATER_FLAGS = re.compile(r"^CONFIG_CC_(HAS_MIN_FUNCTION_ALIGNMENT|OPT_INLINE_MEMSET)=.*\n", re.M)  # GCC 13 and 14
PARTS = re.compile(r"^linux-(?:base|image|binary|modules|headers|kbuild)-\d\S*(?<!-unsigned)$", re.M)


class Unavailable(Exception):
    """What the tests need cannot be had on this machine."""


def command(arguments, **options):
    """Run a command that this machine may lack something for; its output as text."""
    try:
        return subprocess.run(arguments, check=True, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, **options).stdout
    except (OSError, subprocess.SubprocessError) as error:
        lines = (getattr(error, "output", "") or "").strip().splitlines()
        raise Unavailable(lines[-1] if lines else str(error)) from error


def program(name, package):
    """Path of a program."""
    path = shutil.which(name, path="/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin")
    if not path:
        raise Unavailable(f"no {name}: install {package}")
    return path


def the_only(paths, what):
    """The one path of `paths`."""
    paths = list(paths)
    if len(paths) != 1:
        raise Unavailable(f"{what}: found {', '.join(map(str, paths)) or 'none'}, expected one")
    return paths[0]


@dataclass(frozen=True)
class Kernel:
    """A kernel as its packages unpack: boot/vmlinuz-VERSION, lib/modules/VERSION, usr/src/linux-headers-VERSION."""
    root: Path

    @property
    def image(self):
        return the_only(self.root.glob("boot/vmlinuz-*"), f"kernel images in {self.root}/boot")

    @property
    def version(self):
        return self.image.name.removeprefix("vmlinuz-")

    @property
    def headers(self):
        """Where modules for this kernel are built: `make -C` this folder."""
        return self.root / f"usr/src/linux-headers-{self.version}"

    def module_files(self, *names):
        """Files of the modules and of those that they need, in the order to load them; none for what is built in."""
        listing = command([program("modprobe", "kmod"), "--dirname", self.root, "--set-version", self.version,
                           "--show-depends", "--all", *names])
        return list(dict.fromkeys(re.findall(r"^insmod (\S+)", listing, re.M)))


def debian_mirror():
    """URI of the Debian archive in this machine's apt sources."""
    targets = command(["apt-get", "indextargets", "--format", "$(RELEASE) $(COMPONENT) $(REPO_URI)"])
    for line in targets.splitlines():
        release, component, uri = line.split()
        if (release, component) == ("bookworm", "main"):
            return uri
    raise Unavailable("the apt sources of this machine do not name bookworm main")


def apt_options(suite, folder):
    """Options that make apt use only `suite`, with its state under `folder`."""
    for name in ("state/lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "status").touch()
    keyring = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
    signed_by = f"[signed-by={keyring}] " if keyring.exists() else ""
    suites = dict.fromkeys([suite, suite.removesuffix("-backports")])
    (folder / "sources.list").write_text("".join(f"deb {signed_by}{debian_mirror()} {s} main\n" for s in suites))
    options = {"Dir::State": folder / "state", "Dir::State::status": folder / "status",
               "Dir::Cache": folder / "cache", "Dir::Etc::sourcelist": folder / "sources.list",
               "Dir::Etc::sourceparts": "/dev/null", "Dir::Etc::preferences": "/dev/null",
               "Dir::Etc::preferencesparts": "/dev/null", "APT::Sandbox::User": "root", "APT::Architecture": "amd64",
               "APT::Default-Release": suite}
    return [f"-o{key}={value}" for key, value in options.items()]


def is_of_this_debian(suite):
    return suite.startswith("bookworm")


def download(suite, folder):
    """Download the packages of the suite's kernel into `folder`/debs."""
    options, debs = apt_options(suite, folder), folder / "debs"
    shutil.rmtree(debs, ignore_errors=True)
    debs.mkdir()
    command(["apt-get", *options, "update"], timeout=APT_LIMIT)
    # Of one index: image and headers have the same version.
    closure = command(["apt-cache", *options, "depends", "--recurse", "--important",
                       "linux-image-amd64", "linux-headers-amd64"])
    packages = sorted(set(PARTS.findall(closure)))
    if not packages:
        raise Unavailable(f"no kernel of {suite}: its linux-image-amd64 and linux-headers-amd64 name none")
    packages += [] if is_of_this_debian(suite) else LIBRARIES
    command(["apt-get", *options, "download", *packages], cwd=debs, timeout=APT_LIMIT)
    return sorted(debs.glob("*.deb"))


def unpack(debs, root):
    """Unpack a kernel's packages under `root`."""
    for deb in debs:
        command(["dpkg-deb", "--extract", deb, root])
    if not (root / "lib").exists():
        (root / "lib").symlink_to("usr/lib")
    (root / "boot").mkdir(exist_ok=True)
    for image in root.glob("usr/lib/modules/*/vmlinuz"):  # where later packages have it
        image.rename(root / f"boot/vmlinuz-{image.parent.name}")
    command([program("depmod", "kmod"), "--basedir", root, Kernel(root).version])


def edit(path, *substitutions):
    """Replace regular expressions in a file."""
    text = path.read_text()
    for pattern, replacement in substitutions:
        text = re.sub(pattern, replacement, text)
    path.write_text(text)


def adapt_headers(headers, root):
    """Make modules build in `headers`, which will be found under `root`."""
    edit(headers / "Makefile", ("/usr/src/", f"{root}/usr/src/"))
    # Without it modules are built without BTF, which would need a pahole as new as the kernel.
    (headers / "vmlinux").unlink(missing_ok=True)


def adapt_later_headers(headers, root):
    """Make modules of a later Debian's kernel build with this Debian's compiler, to see whether they compile."""
    edit(headers / ".kernelvariables", (r"\bgcc-\d+", COMPILER),
         (r"\Z", "override PAHOLE_VERSION = $(CONFIG_PAHOLE_VERSION)\n"))  # none is used, thus none is too old
    edit(headers / "include/config/auto.conf", (LATER_FLAGS, ""))
    libraries = f"{root}/usr/lib/x86_64-linux-gnu"
    for tool in [path for part in ("scripts", "tools") for path in (headers / part).resolve().rglob("*.real-*")]:
        tool.rename(tool.with_name(f"{tool.name}.elf"))
        tool.write_text(f'#!/bin/sh\nexec {libraries}/ld-linux-x86-64.so.2 --library-path {libraries} "$0.elf" "$@"\n')
        tool.chmod(0o755)


def fetch(suite, cache):
    """The kernel of `suite`, downloaded once."""
    if platform.machine() != "x86_64":
        raise Unavailable(f"the kernels are amd64, this machine is {platform.machine()}")
    folder = cache.resolve() / suite
    folder.mkdir(parents=True, exist_ok=True)
    root, partial = folder / "root", folder / "root.partial"
    with open(folder / "lock", "w") as lock:  # tests run side by side
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            shutil.rmtree(partial, ignore_errors=True)
            unpack(download(suite, folder), partial)
            adapt_headers(Kernel(partial).headers, root)
            if not is_of_this_debian(suite):
                adapt_later_headers(Kernel(partial).headers, root)
            partial.rename(root)
            shutil.rmtree(folder / "debs")
    return Kernel(root)
