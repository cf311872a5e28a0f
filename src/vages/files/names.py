"""Names inside archives, which could point anywhere."""

import re

from vages.files.errors import BadFile

_MAX_NAME = 1024


def member_name(raw: str, archive: str) -> str:
    """A relative path below the folder that one would unpack to, without `.` and empty parts; else `BadFile`.

    The name of the folder itself, as in `tar c .`, becomes the empty string.
    """
    parts = raw.split("/")
    if (
        not raw
        or len(raw) > _MAX_NAME
        or not raw.isprintable()
        or "\\" in raw
        or raw.startswith("/")
        or re.match("[A-Za-z]:", raw)
        or ".." in parts
    ):
        raise BadFile(f"{archive}: expected names inside its folder, got {raw[:80]!r}; make the archive again")
    return "/".join(part for part in parts if part not in ("", "."))
