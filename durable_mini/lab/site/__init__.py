"""The chapters as a static site: pages that anybody can read without a kernel, or a network.

    python -m durable_mini.lab.site site

Guarantees: each page is one file and loads nothing else, neither from another host nor from beside
it; its own content policy forbids it. A link from chapter to chapter, or to a section, leads there.
A picture says what it shows to those who can't see it. Code that JupyterLab folds away is folded
here, and the tags remove-… and hide-… of a cell are honoured. Nothing is executed: a page shows the
outputs that the notebook holds.

`pages` makes one page, `polishing` does what nbconvert leaves undone, `folder` writes them all.
"""

from durable_mini.lab.site.folder import SiteError, build

__all__ = ["SiteError", "build"]
