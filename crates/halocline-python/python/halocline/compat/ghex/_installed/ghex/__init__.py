"""In place of GHEX: halocline.compat.ghex. ``install()`` puts the folder of this package on ``sys.path``, and so on that of children."""

import sys

from halocline.compat.ghex import install

# The import system takes what is under this name at the end.
del sys.modules[__name__]
install()
