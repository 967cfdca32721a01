"""Two images for the node of the tests, built of what this machine has: ours, and one to train with.

`localhost/deeprec-ext:1` has what `tfjob/images/Dockerfile` installs: this package with its extras, and no TensorFlow.
`localhost/training:1` has TensorFlow, what pip installs with it, and scripts; it has nothing of ours. Both have this Python and
the system's libraries that they need, and nothing else: nothing of this machine is mounted into their pods.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
OURS, TRAINING = "localhost/deeprec-ext:1", "localhost/training:1"
SCRIPTS_AT = "/opt/training"
"""Below it they have the paths that they have here."""
PYTHON = Path(sys.executable).resolve()
EXTRAS = ("kubernetes", "dashboard", "autoscale", "history")
"""As in the Dockerfile."""
OUR_PACKAGES = ("deeprec_ext", "tfjob")
USER = "65532:65532"
LEFT_OUT = re.compile(r"(^|/)(__pycache__|tensorflow/include)/|\.(pyc|a)$")
LEFT_OUT_OF_PYTHON = re.compile(r"(^|/)(__pycache__|test|idlelib|config-[^/]*|dist-packages)/|\.(pyc|a)$")
DIRECTORIES = ("dev", "etc", "proc", "run", "sys", "usr/local/bin", "var/log")
FILES = {
    "etc/passwd": "root:x:0:0:root:/tmp:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/tmp:/sbin/nologin\n",
    "etc/group": "root:x:0:\nnonroot:x:65532:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
}


def installed(*names: str) -> Iterator[tuple[Path, str]]:
    """Files of these distributions (`name` or `name[extra,...]`) and of all that they require: where, and as what."""
    found: set[str] = set()
    wanted = [Requirement(name) for name in names]
    while wanted:
        requirement = wanted.pop()
        distribution = importlib.metadata.distribution(requirement.name)
        for one in map(Requirement, distribution.requires or []):
            asked = one.marker is None or any(
                one.marker.evaluate({"extra": extra}) for extra in ("", *requirement.extras)
            )
            if asked and (one.extras or one.name.lower() not in found):
                wanted.append(one)
        name = requirement.name.lower()
        if name in found:
            continue
        found.add(name)
        for file in distribution.files or []:
            # not its programs, and nothing of an installation that only points here
            if ".." not in file.parts and file.suffix != ".pth" and not file.name.startswith("__editable__"):
                yield Path(str(distribution.locate_file(file))), str(file)


def tree(top: Path, *, without: str = "") -> Iterator[tuple[Path, str]]:
    for directory, names, files in os.walk(top):
        names[:] = [name for name in names if name != without]
        for name in files:
            path = Path(directory) / name
            yield path, str(path.relative_to(top))


def libraries(binaries: Iterable[Path]) -> set[Path]:
    """Of the system, that these load."""
    found: set[Path] = set()
    paths = [str(path) for path in binaries]
    for start in range(0, len(paths), 100):
        done = subprocess.run(
            ["ldd", *paths[start : start + 100]], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        found |= {Path(path) for path in re.findall(r"(?:=> |^\s+)(/\S+) \(0x", done.stdout, re.MULTILINE)}
    system = ("/lib/", "/lib64/", "/usr/lib/")
    return {path for path in found if str(path).startswith(system)}


class Layer:
    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self._directories: set[str] = set()

    def directory(self, name: str, mode: int = 0o755) -> None:
        if name in self._directories or name in ("", "."):
            return
        self.directory(os.path.dirname(name))
        self._directories.add(name)
        info = tarfile.TarInfo(name)
        info.type, info.mode = tarfile.DIRTYPE, mode
        self._tar.addfile(info)

    def file(self, source: Path, name: str) -> None:
        self.directory(os.path.dirname(name))
        info = self._tar.gettarinfo(str(source.resolve()), name)
        info.uid = info.gid = info.mtime = 0
        info.uname = info.gname = ""
        info.type, info.linkname = tarfile.REGTYPE, ""  # a second name of the same file is a file here
        info.size = source.stat().st_size
        with source.open("rb") as data:
            self._tar.addfile(info, data)

    def text(self, name: str, text: str) -> None:
        self.directory(os.path.dirname(name))
        info = tarfile.TarInfo(name)
        info.mode, info.size = 0o644, len(text)
        self._tar.addfile(info, io.BytesIO(text.encode()))

    def link(self, name: str, target: str) -> None:
        self.directory(os.path.dirname(name))
        info = tarfile.TarInfo(name)
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, target, 0o777
        self._tar.addfile(info)


def _python(layer: Layer) -> None:
    """This interpreter and its own modules where they are here, and `python` in PATH."""
    layer.file(PYTHON, str(PYTHON)[1:])
    for name in ("python", "python3"):
        layer.link(f"usr/local/bin/{name}", str(PYTHON))
    for top in {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}:
        for source, name in tree(Path(top), without="site-packages"):
            if not LEFT_OUT_OF_PYTHON.search(name):
                layer.file(source, f"{top[1:]}/{name}")


def _site() -> str:
    """Where the interpreter looks for what is installed, without an environment of its own."""
    command = "import site; print(site.getsitepackages()[0])"
    done = subprocess.run([PYTHON, "-I", "-c", command], check=True, stdout=subprocess.PIPE, text=True, timeout=60)
    return done.stdout.strip()[1:]


def _fill(layer: Layer, installed_in: Callable[[Callable[[Path, str], None]], None]) -> None:
    """All of an image; `installed_in` is given what puts a file among the modules that are installed."""
    site, binaries = _site(), []
    for directory in DIRECTORIES:
        layer.directory(directory)
    layer.directory("tmp", 0o1777)
    for name, text in FILES.items():
        layer.text(name, text)
    _python(layer)

    def put(source: Path, name: str) -> None:
        if not LEFT_OUT.search(name):
            layer.file(source, name[1:] if name.startswith("/") else f"{site}/{name}")
            if ".so" in source.name:
                binaries.append(source)

    installed_in(put)
    base = Path(sysconfig.get_path("stdlib"))
    for library in sorted(libraries([PYTHON, *base.glob("lib-dynload/*.so"), *binaries])):
        layer.file(library, str(library)[1:])
    for library in sorted(base.parent.glob("libpython*.so*")):  # not of the system, where Python is not
        layer.file(library, str(library)[1:])


def _digest(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as data:
        while part := data.read(1 << 20):
            found.update(part)
    return found.hexdigest()


def make(place: Path, scripts: Sequence[str]) -> Path:
    """An OCI layout with both, for `cluster load`. Takes a minute or so and some gigabytes.

    Args:
        scripts: of the training image, from the top of the repository.
    """

    def ours(put: Callable[[Path, str], None]) -> None:
        for source, name in installed(f"deeprec-ext[{','.join(EXTRAS)}]"):
            put(source, name)
        for package in OUR_PACKAGES:
            for source, name in tree(ROOT / package, without="__pycache__"):
                put(source, f"{package}/{name}")

    def training(put: Callable[[Path, str], None]) -> None:
        for source, name in installed("tensorflow"):
            put(source, name)
        for script in scripts:
            put(ROOT / script, f"{SCRIPTS_AT}/{script}")

    out = place / "images.tar"
    with tarfile.open(out, "w", format=tarfile.GNU_FORMAT) as tar:

        def blob(data: bytes) -> tuple[str, int]:
            digest = hashlib.sha256(data).hexdigest()
            _put(tar, f"blobs/sha256/{digest}", data)
            return f"sha256:{digest}", len(data)

        manifests = []
        for image, installed_in, user in ((OURS, ours, USER), (TRAINING, training, "0")):
            path = place / "layer.tar"
            with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as layer:
                _fill(Layer(layer), installed_in)
            digest, size = _digest(path), path.stat().st_size
            tar.add(path, f"blobs/sha256/{digest}")
            path.unlink()
            manifests.append(_manifest(image, f"sha256:{digest}", size, user, blob))
        _put(tar, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        _put(tar, "index.json", json.dumps({"schemaVersion": 2, "manifests": manifests}).encode())
    return out


def _put(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.mode, info.size = 0o644, len(data)
    tar.addfile(info, io.BytesIO(data))


def _manifest(image: str, layer: str, size: int, user: str, blob: Callable[[bytes], tuple[str, int]]) -> dict[str, Any]:
    oci = "application/vnd.oci.image"
    environment = ["PATH=/usr/local/bin:/bin", "HOME=/tmp", "PYTHONDONTWRITEBYTECODE=1"]
    config = {
        "architecture": "amd64", "os": "linux", "config": {"Env": environment, "User": user},
        "rootfs": {"type": "layers", "diff_ids": [layer]}, "history": [{"created_by": "tests/cluster/images.py"}],
    }  # fmt: skip
    digest, length = blob(json.dumps(config).encode())
    manifest = {
        "schemaVersion": 2, "mediaType": f"{oci}.manifest.v1+json",
        "config": {"mediaType": f"{oci}.config.v1+json", "digest": digest, "size": length},
        "layers": [{"mediaType": f"{oci}.layer.v1.tar", "digest": layer, "size": size}],
    }  # fmt: skip
    digest, length = blob(json.dumps(manifest).encode())
    return {
        "mediaType": f"{oci}.manifest.v1+json", "digest": digest, "size": length,
        "annotations": {"io.containerd.image.name": image, "org.opencontainers.image.ref.name": image.rsplit(":", 1)[1]},
    }  # fmt: skip
