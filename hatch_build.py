"""What the package's metadata say of where the project lives, for `hatchling`.

`RAMMER_ADDRESS`, the address of the repository's page, is given where a release is built: nothing else knows it. Links
and pictures of the README, which are relative in the repository, then lead to the files of that version.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?\[(?:[^][]|\[[^]]*\])*\])\((?![a-z]+:|#)([^)\s]+)\)")


def with_addresses(text: str, address: str, version: str) -> str:
    """Markdown whose relative links and pictures have addresses."""

    def absolute(link: re.Match[str]) -> str:
        kind = "raw" if link[1].startswith("!") else "blob"
        return f"{link[1]}({address}/{kind}/v{version}/{link[2]})"

    return _LINK.sub(absolute, text)


def addresses(address: str, version: str) -> dict[str, str]:
    """The project's pages by what they are."""
    files = f"{address}/blob/v{version}"
    return {
        "Repository": address,
        "Documentation": f"{files}/docs/README.md",
        "Changelog": f"{files}/CHANGELOG.md",
        "Issues": f"{address}/issues",
    }


class Metadata(MetadataHookInterface):
    """Fills in `readme` and `urls`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Called once the version is known."""
        readme = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        if address := os.environ.get("RAMMER_ADDRESS", "").rstrip("/"):
            metadata["urls"] = addresses(address, metadata["version"])
            readme = with_addresses(readme, address, metadata["version"])
        metadata["readme"] = {"content-type": "text/markdown", "text": readme}
