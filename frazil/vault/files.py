"""Files of a vault: the notes, the other files, and the files that cannot be read."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from frazil.errors import NotFound
from frazil.vault.links import is_note

MAX_NOTE_BYTES = 1 << 20
"""A note travels as one event, which has a limit of its own; a larger file is not a note that somebody wrote."""


@dataclass(frozen=True)
class Skipped:
    path: str
    reason: str


@dataclass
class Listing:
    """What a walk through the vault found. Paths are relative to its folder, with slashes."""

    notes: dict[str, Path] = field(default_factory=dict)
    """Where the bytes of each note are: its own place, or that which a link inside the vault leads to."""
    others: list[str] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    unread_folders: list[str] = field(default_factory=list)

    def is_unread(self, path: str) -> bool:
        """Whether the path is one, or lies in one, that could not be read: nobody knows whether it is gone."""
        if any(path == skipped.path for skipped in self.skipped):
            return True
        return any(path.startswith(f"{folder}/") for folder in self.unread_folders)


class Unread(Exception):
    """A file that cannot be taken as a note; its text is the reason."""


def walk(root: Path) -> Listing:
    """All files below the folder, without hidden ones. A link that leaves the vault is refused, not followed."""
    if not root.is_dir():
        raise NotFound(f"{root} is not a folder", code="no_vault", hint="give the folder that holds the notes")
    listing = Listing()
    _walk(root.resolve(), "", listing)
    return listing


def _walk(root: Path, folder: str, listing: Listing) -> None:
    try:
        with os.scandir(root / folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except FileNotFoundError:
        return  # gone since its name was read
    except OSError as error:
        listing.skipped.append(Skipped(folder, f"the folder cannot be read: {error.strerror}"))
        listing.unread_folders.append(folder)
        return
    for entry in found:
        if entry.name.startswith("."):
            continue
        path = f"{folder}/{entry.name}" if folder else entry.name
        if not _is_text(path):
            listing.skipped.append(Skipped(ascii(path), "its name is not UTF-8"))
        elif entry.is_symlink():
            _follow(root, path, listing)
        elif entry.is_dir(follow_symlinks=False):
            _walk(root, path, listing)
        elif is_note(path):
            listing.notes[path] = root / path
        else:
            listing.others.append(path)


def _follow(root: Path, path: str, listing: Listing) -> None:
    try:
        target = (root / path).resolve(strict=True)
    except (OSError, RuntimeError):
        if is_note(path):
            listing.skipped.append(Skipped(path, "it is a link that leads nowhere"))
        return
    inside = target.is_relative_to(root) and not any(part.startswith(".") for part in target.relative_to(root).parts)
    if not inside:
        listing.skipped.append(Skipped(path, "it is a link that leaves the vault"))
        listing.unread_folders.append(path)
    elif target.is_file():
        # A linked folder inside the vault is there under its own name.
        if is_note(path):
            listing.notes[path] = target
        else:
            listing.others.append(path)


def read_note(place: Path) -> bytes:
    """The bytes of a note, read in one go; `Unread` says why not, and FileNotFoundError that it is gone."""
    # Neither a link nor a pipe that was put in the place of the file since the walk is opened.
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Unread(f"it cannot be read: {error.strerror}") from error
    with open(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise Unread("it is not a regular file")
        try:
            raw = file.read(MAX_NOTE_BYTES + 1)
        except OSError as error:
            raise Unread(f"it cannot be read: {error.strerror}") from error
    if len(raw) > MAX_NOTE_BYTES:
        raise Unread(f"it has {about.st_size:,} bytes, at most {MAX_NOTE_BYTES:,} are a note")
    return raw


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
