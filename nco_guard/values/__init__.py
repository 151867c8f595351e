"""The one room for values: the only code that looks into what is not plain text.

Messages, documents, arguments and results of tools, metadata, errors: `Cleaner` finds and replaces what a policy
forbids in any Python value, `texts_of` says which texts it reads. Frameworks say by `register` how their types are
read; none is imported here.
"""

from nco_guard.values.cleaner import Cleaner
from nco_guard.values.roles import Fields, Role, register
from nco_guard.values.texts import texts_of
from nco_guard.values.value_stream import ValueStream

__all__ = [
    "Cleaner",
    "Fields",
    "Role",
    "ValueStream",
    "register",
    "texts_of",
]
