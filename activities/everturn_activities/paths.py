"""Paths that cannot leave a folder, whatever else is renamed or linked there meanwhile."""

import ctypes
import errno
import functools
import os
import secrets
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from everturn.errors import NotThere, ToolFailed

_OPENAT2 = 437  # The same number on every architecture that Python runs on.
_RESOLVE_BENEATH_WITHOUT_MAGIC_LINKS = 0x08 | 0x02
_BUSY_TRIES = 100
_PATH = getattr(os, "O_PATH", os.O_RDONLY)
_MARK = "user.everturn.calls"


class WorkingFolder:
    """The folder that file tools work in.

    Reading follows symbolic links that stay inside. Writing follows none, so that the path
    that was asked for is the path that is changed, and `protected` can be judged by its text.
    """

    def __init__(self, root: Path, protected: Sequence[Path] = ()) -> None:
        self._root = root
        self._protected = tuple(protected)

    @contextmanager
    def reading(self, path: str, folder: bool = False) -> Iterator[int]:
        """A descriptor of the file or folder at `path`."""
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (os.O_DIRECTORY if folder else 0)
        with self._opened_root() as root, _named(path):
            descriptor = _open_beneath(root, _parts(path) or ["."], flags)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def writing(self, path: str, create_folders: bool = False) -> Iterator["Place"]:
        """Where `path` is, for a change of it."""
        parts = _parts(path)
        if not parts:
            raise ToolFailed(f"{path!r} is the working folder itself; name a file in it.")
        self._refuse_protected(path, parts)
        with self._opened_root() as root, _named(path):
            parent = _walk(root, parts[:-1], create_folders)
        try:
            yield Place(parent, parts[-1], path)
        finally:
            os.close(parent)

    @contextmanager
    def _opened_root(self) -> Iterator[int]:
        try:
            root = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise ToolFailed(f"The working folder cannot be opened: {error.strerror}.") from None
        try:
            yield root
        finally:
            os.close(root)

    def _refuse_protected(self, path: str, parts: Sequence[str]) -> None:
        inside, folded = protected_parts(self._root, self._protected)
        asked = [part.casefold() for part in parts]
        for exact, protected in zip(inside, folded, strict=True):
            # A file on the way to a protected path is protected with it.
            length = min(len(asked), len(protected))
            if tuple(asked[:length]) != protected[:length]:
                continue
            if tuple(parts[:length]) == exact[:length] or _ignores_case(self._root):
                raise ToolFailed(
                    f"{path} configures the runtime and cannot be changed by tools;"
                    " ask the person to change it."
                )


class Place:
    """A name in an open folder."""

    def __init__(self, parent: int, name: str, path: str) -> None:
        self.parent = parent
        self.name = name
        self.path = path

    @contextmanager
    def reading(self) -> Iterator[int]:
        """A descriptor of the file there, which may not be a symbolic link."""
        with _named(self.path):
            descriptor = os.open(
                self.name,
                os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC,
                dir_fd=self.parent,
            )
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def is_still(self, descriptor: int) -> bool:
        """Whether the name still stands for the open file."""
        try:
            named = os.stat(self.name, dir_fd=self.parent, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return os.path.samestat(named, os.fstat(descriptor))

    def remove(self) -> None:
        """Remove the file there, which may be gone already."""
        with _named(self.path), suppress(FileNotFoundError):
            os.unlink(self.name, dir_fd=self.parent)

    def replace(self, content: bytes, marks: str = "", mode: int | None = None) -> None:
        """Put `content` there at once: a reader, or a crash, sees the old file or the new one.

        An existing file keeps its mode, unless `mode` names another. `marks` are attached to the
        new file where the file system has extended attributes.
        """
        with _named(self.path):
            try:
                old = os.stat(self.name, dir_fd=self.parent, follow_symlinks=False)
            except FileNotFoundError:
                old = None
            if old is not None and not stat.S_ISREG(old.st_mode):
                raise ToolFailed(f"{self.path} is {_kind(old.st_mode)}, not a file.")
            # The name is kept short: the file's own may be as long as names can be.
            temporary = f".everturn-{secrets.token_hex(8)}.tmp"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(temporary, flags, 0o666, dir_fd=self.parent)
            try:
                try:
                    if old is not None:
                        with suppress(PermissionError):
                            os.fchown(descriptor, old.st_uid, old.st_gid)
                        os.fchmod(descriptor, stat.S_IMODE(old.st_mode) & 0o777)
                    if mode is not None:
                        os.fchmod(descriptor, mode & 0o777)
                    if marks:
                        write_marks(descriptor, marks)
                    _write_all(descriptor, content)
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
                os.rename(temporary, self.name, src_dir_fd=self.parent, dst_dir_fd=self.parent)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=self.parent)
                raise
            os.fsync(self.parent)


def read_marks(descriptor: int) -> str | None:
    """The marks on an open file, empty if there are none; None where there can be none."""
    if sys.platform != "linux":
        return None
    try:
        return os.getxattr(descriptor, _MARK).decode("ascii", "replace")
    except OSError as error:
        return "" if error.errno == errno.ENODATA else None


def write_marks(descriptor: int, marks: str) -> None:
    if sys.platform == "linux":
        with suppress(OSError):
            os.setxattr(descriptor, _MARK, marks.encode())


@functools.lru_cache(maxsize=256)
def protected_parts(
    root: Path, protected: tuple[Path, ...]
) -> tuple[tuple[tuple[str, ...], ...], tuple[tuple[str, ...], ...]]:
    """The protected paths below `root` as their parts, as written and with case folded.

    One that `root` lies in, or is, comes out as no parts: it covers everything.
    """
    inside = []
    real = root.resolve()
    for path in protected:
        for base in (root, real):
            if path.is_relative_to(base):
                inside.append(path.relative_to(base).parts)
                break
        else:
            if real.is_relative_to(path):
                inside.append(())
    folded = tuple(tuple(part.casefold() for part in parts) for parts in inside)
    return tuple(inside), folded


def _parts(path: str) -> list[str]:
    """The components of a relative path; `.` has none."""
    if path.startswith("/"):
        raise ToolFailed(f"{path!r} is absolute; give a path relative to the working folder.")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ToolFailed(
            f"{path!r} has a '..' in it; give a path below the working folder without any."
        )
    try:
        valid = "\0" not in path and bool(path.encode())
    except UnicodeEncodeError:
        valid = False
    if not valid:
        raise ToolFailed(f"{path!r} is no path; give one relative to the working folder.")
    return parts


class _OpenHow(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _openat2(root: int, path: str, flags: int) -> int:
    how = _OpenHow(flags, 0, _RESOLVE_BENEATH_WITHOUT_MAGIC_LINKS)
    for _ in range(_BUSY_TRIES):
        descriptor = _libc().syscall(
            ctypes.c_long(_OPENAT2),
            ctypes.c_int(root),
            ctypes.c_char_p(path.encode()),
            ctypes.byref(how),
            ctypes.c_size_t(ctypes.sizeof(how)),
        )
        if descriptor >= 0:
            return int(descriptor)
        if ctypes.get_errno() != errno.EAGAIN:
            break
        # Something in the path was renamed while it was resolved.
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@functools.cache
def has_openat2() -> bool:
    """Whether the kernel has openat2; old ones do not, and some containers forbid it."""
    if sys.platform != "linux":
        return False
    root = os.open("/", _PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.close(_openat2(root, ".", _PATH | os.O_CLOEXEC))
    except OSError:
        return False
    finally:
        os.close(root)
    return True


def _open_beneath(root: int, parts: Sequence[str], flags: int) -> int:
    if has_openat2():
        return _openat2(root, "/".join(parts), flags)
    return open_by_walking(root, parts, flags)


def open_by_walking(root: int, parts: Sequence[str], flags: int) -> int:
    """Open without following any symbolic link: the way where there is no openat2."""
    parent = _walk(root, parts[:-1])
    try:
        return os.open(parts[-1], flags | os.O_NOFOLLOW, dir_fd=parent)
    finally:
        os.close(parent)


def _walk(root: int, parts: Sequence[str], create: bool = False) -> int:
    """A descriptor of the folder at `parts`, none of them a symbolic link."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    folder = os.dup(root)
    for part in parts:
        try:
            if create:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=folder)
            inner = os.open(part, flags, dir_fd=folder)
        finally:
            os.close(folder)
        folder = inner
    return folder


@contextmanager
def _named(path: str) -> Iterator[None]:
    """Errors of the system as sentences that name the path as the model gave it."""
    try:
        yield
    except FileNotFoundError:
        raise NotThere(f"{path} does not exist.") from None
    except OSError as error:
        match error.errno:
            case errno.EXDEV:
                reason = "leads out of the working folder"
            case errno.ELOOP:
                reason = "goes through a symbolic link that cannot be followed here"
            case errno.ENOTDIR:
                reason = "goes through something that is not a folder, or is a symbolic link"
            case _:
                reason = f"cannot be used: {error.strerror}"
        raise ToolFailed(f"{path} {reason}.") from None


def _write_all(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _kind(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "a folder"
    if stat.S_ISLNK(mode):
        return "a symbolic link"
    return "a special file"


def _ignores_case(folder: Path) -> bool:
    """Whether the file system takes `A` and `a` for one name; True where nothing tells."""
    with suppress(OSError):
        for name in os.listdir(folder):
            if name.swapcase() == name:
                continue
            try:
                return os.path.samefile(folder / name, folder / name.swapcase())
            except FileNotFoundError:
                return False
    return True
