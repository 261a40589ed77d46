"""Tables of pyarrow, polars, pandas and cuDF: to Arrow for ``halocline.rolling``, and back."""

import collections
import datetime
import sys

from ._errors import HaloTypeError, HaloValueError

ACCEPTED = "a table of pyarrow, polars, pandas or cuDF, or an object with __arrow_c_stream__"


def source(table, keys, needed):
    """The table of the program. ``keys``: its groups and its key. ``needed``: the other columns that are needed; ``None``: all."""
    for kind in type(table).__mro__:
        library, name = kind.__module__.partition(".")[0], kind.__name__
        if (library, name) == ("polars", "DataFrame"):
            return PolarsFrame(table, keys, needed)
        if (library, name) == ("pandas", "DataFrame"):
            return PandasFrame(table, keys, needed)
        if (library, name) == ("cudf", "DataFrame"):
            return CudfFrame(table, keys, needed)
        if (library, name) == ("polars", "LazyFrame"):
            raise HaloTypeError("table: a LazyFrame has no rows before it is computed; give table.collect()")
        if name in ("Series", "Array", "ChunkedArray"):
            raise HaloTypeError(f"table: {ACCEPTED} is wanted, not a single column ({library}.{name})")
    if not hasattr(table, "__arrow_c_stream__"):
        raise HaloTypeError(f"table: {ACCEPTED} is wanted, not {type(table).__name__}")
    pyarrow = pyarrow_for("a table of Arrow")
    try:
        rows = pyarrow.table(table)
    except (TypeError, ValueError, pyarrow.ArrowException) as refused:
        raise HaloTypeError(f"table: it cannot be read: {refused}") from refused
    return ArrowTable(rows, keys, needed)


def pyarrow_for(what):
    try:
        import pyarrow
    except ImportError as missing:
        raise HaloTypeError(f"table: {what} needs pyarrow; pip install pyarrow") from missing
    return pyarrow


def wanted(columns, keys, needed):
    """Those of a table's columns that are needed; all if one is missing, so that the error can name them."""
    refuse_twice("columns", columns)
    some = {*keys, *columns} if needed is None else {*keys, *needed}
    return [column for column in columns if column in some] if some <= set(columns) else list(columns)


def refuse_twice(what, names):
    """Refuses columns or levels of which two have one name."""
    twice = next((name for name, count in collections.Counter(names).items() if count > 1), None)
    if twice is not None:
        raise HaloValueError(f"table: two {what} are named {twice!r}; give each a name of its own")


class ArrowTable:
    """A ``pyarrow.Table``. A source has the rows as ``stream``, and makes tables of its kind."""

    def __init__(self, table, keys, needed):
        self.stream = self.rows = table.select(wanted(table.column_names, keys, needed))
        self.keys = keys

    def table(self, stream):
        """The rows of a stream."""
        return pyarrow_for("this table").table(stream)

    def result(self, stream, of):
        """The keys of the own rows, and the columns of a stream, each computed of that column of the table that ``of`` names."""
        result, columns = self.rows.select(self.keys), self.table(stream)
        for name in columns.column_names:
            result = result.append_column(name, columns[name])
        return result

    def own(self, values, rows, own):
        """The own rows of values that have a row for each of ``rows``."""
        count = None if isinstance(values, dict) else _length(values)
        if count is None:
            raise HaloTypeError(
                f"aggregate: a table, a column or an array with a row for each of {rows} rows is wanted, not {type(values).__name__}"
            )
        if count != rows:
            raise HaloValueError(
                f"aggregate: {count} rows for the {rows} rows of the context; give a row for each, in the same order"
            )
        if hasattr(values, "iloc"):
            return values.iloc[own]
        if callable(getattr(values, "slice", None)):
            return values.slice(own.start, own.stop - own.start)
        return values[own]


class PolarsFrame(ArrowTable):
    """A ``polars.DataFrame``."""

    def __init__(self, frame, keys, needed):
        import polars

        self.rows = frame.select(wanted(frame.columns, keys, needed))
        self.keys = keys
        # The stream of polars has a buffer for a column of nulls alone, which Arrow does not allow.
        has_nulls_alone = polars.Null in self.rows.dtypes
        self.stream = self.rows.to_arrow() if has_nulls_alone else self.rows
        for name, kind in self.rows.schema.items():
            if kind == polars.Object:
                raise HaloTypeError(f"table: column {name!r} has objects of Python, which do not travel; drop it")

    def table(self, stream):
        import polars

        return polars.DataFrame(stream)

    def result(self, stream, of):
        return self.rows.select(self.keys).hstack(self.table(stream))


class PandasFrame(ArrowTable):
    """A ``pandas.DataFrame``. Keys may be levels of its index."""

    def __init__(self, frame, keys, needed):
        pyarrow = pyarrow_for("a table of pandas")
        columns = set(map(str, frame.columns))
        self.levels = [name for name in frame.index.names if isinstance(name, str) and name in keys and name not in columns]
        refuse_twice("levels of the index", self.levels)
        self.index = frame.index
        if None in frame.index.names:
            missing = next((key for key in keys if key not in columns and key not in self.levels), None)
            if missing is not None:
                raise HaloValueError(
                    f"table: it has no column {missing!r}, and its index has no name; if that is meant, name the index: "
                    f"frame.rename_axis({missing!r})"
                )
        flat = frame.reset_index(level=self.levels) if self.levels else frame
        self.flat = flat[wanted(list(flat.columns), keys, needed)]
        try:
            rows = pyarrow.Table.from_pandas(self.flat, preserve_index=False)
        except (pyarrow.ArrowException, ValueError, TypeError) as refused:
            raise HaloTypeError(f"table: pandas cannot give it to Arrow: {refused}") from refused
        super().__init__(rows, keys, needed)
        # The types of the columns of the frame.
        self.dtypes = dict(zip(rows.column_names, self.flat.dtypes))

    def table(self, stream):
        rows = pyarrow_for("this table").table(stream)
        frame = to_pandas(rows, {name: arrow_type(self.dtypes[name]) for name in rows.column_names})
        return frame.set_index(self.levels) if self.levels else frame

    def result(self, stream, of):
        label = dict(zip(self.rows.column_names, self.flat.columns))
        result = self.flat[[label[key] for key in self.keys if key not in self.levels]].copy()
        result.index = self.index
        rows = pyarrow_for("this table").table(stream)
        kinds = zip(rows.schema, of)
        columns = to_pandas(rows, {field.name: type_of_result(field.type, self.dtypes[name]) for field, name in kinds})
        for name in columns:
            result[name] = columns[name].array
        return result

    def own(self, values, rows, own):
        cut = super().own(values, rows, own)
        if hasattr(cut, "iloc") and len(cut) == len(self.index):
            cut = cut.copy()
            cut.index = self.index
        return cut


def _length(values):
    """The number of rows; ``None`` if there are none to count."""
    try:
        return len(values)
    except TypeError:
        return None


def arrow_type(dtype):
    """A type of pandas that takes columns of Arrow as they are, with their nulls; ``None`` for the others, such as those of NumPy."""
    return dtype if hasattr(dtype, "__from_arrow__") else None


def type_of_result(kind, dtype):
    """The type of pandas for a result of the Arrow type ``kind``, computed of a column of the type ``dtype``."""
    import pandas

    if isinstance(dtype, getattr(pandas, "ArrowDtype", ())):
        return pandas.ArrowDtype(kind)
    return nullable(kind) if type(dtype).__name__.removesuffix("Dtype") in MASKED else None


def nullable(kind):
    """The nullable type of pandas for an Arrow type; ``None`` if there is none."""
    import pandas

    name = {"bool": "Boolean", "float": "Float32", "double": "Float64"}.get(str(kind), str(kind).title().replace("Ui", "UI"))
    dtype = getattr(pandas, f"{name}Dtype", None) if name in MASKED else None
    return dtype and dtype()


MASKED = ("Boolean", "Float32", "Float64", *(f"{sign}nt{bits}" for sign in ("I", "UI") for bits in (8, 16, 32, 64)))
"""Nullable types of pandas."""


def to_pandas(rows, types):
    """A frame of pandas. ``types``: of some columns. Whole numbers and truth values beside nulls get a nullable type: the numbers would
    become ``float64`` otherwise, and lose digits."""
    import pandas

    exact = {}
    for name in rows.column_names:
        kind = types.get(name)
        if kind is None and rows[name].null_count and str(rows[name].type) not in ("float", "double", "halffloat"):
            kind = nullable(rows[name].type)
        if kind is not None:
            exact[name] = kind
    plain = [name for name in rows.column_names if name not in exact]
    frame = rows.select(plain).to_pandas() if plain else pandas.DataFrame(index=pandas.RangeIndex(len(rows)))
    for at, name in enumerate(rows.column_names):
        if name in exact:
            frame.insert(at, name, exact[name].__from_arrow__(rows[name]))
    return frame


class CudfFrame(ArrowTable):
    """A ``cudf.DataFrame``: its rows travel through host memory."""

    def __init__(self, frame, keys, needed):
        self.kind = type(frame)
        super().__init__(frame.to_arrow(preserve_index=False), keys, needed)

    def table(self, stream):
        return self.kind.from_arrow(super().table(stream))

    def result(self, stream, of):
        columns = pyarrow_for("this table").table(stream)
        result = self.rows.select(self.keys)
        for name in columns.column_names:
            result = result.append_column(name, columns[name])
        return self.kind.from_arrow(result)


def duration(length):
    """The text of a timedelta (of Python, pandas or NumPy); ``None`` for other objects."""
    if isinstance(length, datetime.timedelta):
        whole = (length.days * 86400 + length.seconds) * 10**9 + length.microseconds * 1000
        return text_of(whole + getattr(length, "nanoseconds", 0))
    if type(length).__module__ == "numpy" and type(length).__name__ == "timedelta64":
        unit, step = sys.modules["numpy"].datetime_data(length.dtype)
        size = {"W": 7 * 86400 * 10**9, "D": 86400 * 10**9, **{unit: size for unit, size in UNITS}}.get(unit)
        if size is None or length != length:
            raise HaloValueError(f"{length!r} is no length of a window: give weeks, days, h, m, s, ms, us or ns")
        # NumPy's own conversion to nanoseconds overflows without a word.
        return text_of(int(length.astype("int64")) * step * size)
    return None


UNITS = [("d", 86400 * 10**9), ("h", 3600 * 10**9), ("m", 60 * 10**9), ("s", 10**9), ("ms", 10**6), ("us", 1000), ("ns", 1)]
"""Units of lengths, and their nanoseconds."""


def text_of(nanoseconds):
    """A length in the largest unit that divides it."""
    return next(f"{nanoseconds // size}{unit}" for unit, size in UNITS if nanoseconds % size == 0)
