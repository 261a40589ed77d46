//! Indices of fields that a connectivity decides: whether a field has those in the rows of the table that a call uses.
//!
//! A field that has all indices in the table passes at once. Only for another one are the rows looked at: others may contain anything.

use super::PyFieldProgram;
use super::field::{Domain, Place};
use crate::program::program_error::of_program;
use halocline_program::ProgramError;
use pyo3::prelude::*;

/// The integers of a call by the position of their leaf.
type Integers<'a> = &'a dyn Fn(usize) -> Option<i64>;

pub(super) struct Gather {
    /// The position of the field.
    pub(super) leaf: usize,
    dimension: usize,
    /// The lowest and the highest index in the whole table.
    whole: (i64, i64),
    /// The offset to add to the elements of the table.
    shift: i64,
    /// The rows that the program uses, and ranges that are empty if it uses none.
    rows: Span,
    over: Box<[Span]>,
    /// Gives the lowest and the highest element in some rows.
    image: Py<PyAny>,
    /// The name of the offset.
    offset: Box<str>,
}

struct Span {
    first: End,
    end: End,
}

/// A number that follows from a call.
struct End {
    base: Option<Base>,
    added: i64,
}

enum Base {
    Start { leaf: usize, dimension: usize },
    Stop { leaf: usize, dimension: usize },
    Scalar { leaf: usize },
}

type PythonEnd = (Option<(usize, usize, Option<String>)>, i64);

impl End {
    fn of((place, added): PythonEnd) -> Self {
        let base = place.map(|(leaf, dimension, part)| match part.as_deref() {
            Some("start") => Base::Start { leaf, dimension },
            Some(_) => Base::Stop { leaf, dimension },
            None => Base::Scalar { leaf },
        });
        Self { base, added }
    }

    /// `None` if the call gives no such number, which the checks of its arguments refuse.
    fn value(&self, domains: &[Domain], integers: Integers<'_>) -> Option<i64> {
        let base = match self.base {
            None => 0,
            Some(Base::Start { leaf, dimension }) => domains.get(leaf)?.indices(dimension)?.0,
            Some(Base::Stop { leaf, dimension }) => domains.get(leaf)?.indices(dimension)?.1,
            Some(Base::Scalar { leaf }) => integers(leaf)?,
        };
        base.checked_add(self.added)
    }
}

impl Span {
    fn of((first, end): (PythonEnd, PythonEnd)) -> Self {
        Self { first: End::of(first), end: End::of(end) }
    }

    fn values(&self, domains: &[Domain], integers: Integers<'_>) -> Option<(i64, i64)> {
        Some((self.first.value(domains, integers)?, self.end.value(domains, integers)?))
    }
}

impl Gather {
    /// Whether the rows that the program uses follow from the number at this position.
    pub(super) fn depends_on(&self, position: usize) -> bool {
        let spans = self.over.iter().chain([&self.rows]);
        spans.flat_map(|span| [&span.first, &span.end]).any(|end| match end.base {
            Some(Base::Scalar { leaf }) => leaf == position,
            _ => false,
        })
    }

    /// From Python: a dictionary.
    pub(super) fn of(gather: &Bound<'_, PyAny>) -> PyResult<Self> {
        let item = |name: &str| gather.get_item(name);
        let shift = item("shift")?.extract()?;
        let (lowest, highest): (i64, i64) = item("whole")?.extract()?;
        let over: Vec<(PythonEnd, PythonEnd)> = item("over")?.extract()?;
        Ok(Self {
            leaf: item("leaf")?.extract()?,
            dimension: item("dimension")?.extract()?,
            whole: (lowest.saturating_add(shift), highest.saturating_add(shift)),
            shift,
            rows: Span::of(item("rows")?.extract()?),
            over: over.into_iter().map(Span::of).collect(),
            image: item("image")?.unbind(),
            offset: item("offset")?.extract::<String>()?.into(),
        })
    }

    /// Refuses a field that lacks an index. `domains` and `integers` are those of all leaves of the call.
    #[inline]
    pub(super) fn check(
        &self,
        py: Python<'_>,
        program: &PyFieldProgram,
        domains: &[Domain],
        integers: Integers<'_>,
    ) -> PyResult<()> {
        match domains[self.leaf].indices(self.dimension) {
            Some((start, stop)) if self.whole.0 < start || stop <= self.whole.1 => {
                let place = Place { program: program.program.name(), leaf: &program.leaves[self.leaf] };
                let rows = self.rows.values(domains, integers);
                let is_empty =
                    |span: &Span| span.values(domains, integers).is_none_or(|(first, end)| first >= end);
                match rows.filter(|(first, end)| first < end && !self.over.iter().any(is_empty)) {
                    Some(rows) => self.check_rows(py, place, (start, stop), rows),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    #[cold]
    fn check_rows(
        &self,
        py: Python<'_>,
        place: Place<'_>,
        (start, stop): (i64, i64),
        rows: (i64, i64),
    ) -> PyResult<()> {
        let found: Option<(i64, i64)> = self.image.bind(py).call1(rows)?.extract()?;
        match found.map(|(low, high)| (low.saturating_add(self.shift), high.saturating_add(self.shift))) {
            Some((low, high)) if low < start || stop <= high => Err(of_program(ProgramError::Bounds {
                program: place.program.into(),
                argument: place.leaf.name.clone(),
                dimension: place.leaf.label(self.dimension).into(),
                first: start,
                end: stop,
                needs: format!("{low} to {} through offset {}", high.saturating_add(1), self.offset).into(),
            })),
            _ => Ok(()),
        }
    }
}
