"""The type checker of the tests: beartype, with an int where a float may be."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
