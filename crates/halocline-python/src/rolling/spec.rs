//! The window of `rolling`, as arguments give it.

use super::table_error::of_table;
use super::tables;
use crate::argument::{Argument, ArgumentType, Get, Refusal, accept, choose, shown_in_message};
use crate::error;
use halocline_table::{Closed, Rolling, Route, TableError, Window};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt, PyString, PyTuple};

/// A length along the key, or a number of rows.
enum Length {
    Text(String),
    Rows(i64),
}

impl Length {
    const WANTED: &'static str =
        "a duration (\"5s\", a timedelta), units of an integer key (\"5i\") or a number of rows";

    fn new(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Self> {
        if let Ok(text) = object.cast::<PyString>() {
            return Ok(Self::Text(text.to_string_lossy().into_owned()));
        }
        if let Some(rows) = whole_number(object) {
            return rows.extract().map(Self::Rows).map_err(|_| {
                error::value_error(format!("{name}: {} rows are too many", shown_in_message(object)))
            });
        }
        let text = tables(object.py())?.call_method1("duration", (object,))?;
        match text.extract::<Option<String>>()? {
            Some(text) => Ok(Self::Text(text)),
            None => Err(error::type_error(format!(
                "{name}: {} is wanted, not {}",
                Self::WANTED,
                shown_in_message(object)
            ))),
        }
    }

    fn window(self, name: &str) -> PyResult<Window> {
        match self {
            Self::Text(text) => Window::period(&text).map_err(|why| of_table(why, name)),
            Self::Rows(rows) => Window::rows(count(rows, name)?).map_err(|why| of_table(why, name)),
        }
    }
}

/// The `int` that an object is or stands for, as NumPy's integers do. Truth values are none.
fn whole_number<'py>(object: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    if object.is_instance_of::<PyBool>() {
        return None;
    }
    if object.is_instance_of::<PyInt>() {
        return Some(object.clone());
    }
    // NumPy's truth values and arrays of more than one number refuse.
    object.getattr_opt(intern!(object.py(), "__index__")).ok()??.call0().ok()
}

/// `by`: the name of the key.
fn key(by: &Bound<'_, PyAny>) -> PyResult<String> {
    if by.is_none() {
        return Err(error::type_error(
            "by: the name of the key is wanted, not None; give the index of a pandas frame a name: \
             frame.rename_axis(\"time\"), by=\"time\"",
        ));
    }
    Argument::<String>::from(by).get("by")
}

/// A number of rows of a window.
fn count(rows: i64, name: &str) -> PyResult<u32> {
    u32::try_from(rows).map_err(|_| {
        error::value_error(format!(
            "{name}: a number of rows, at least 0 and below 2**32, is wanted, not {rows}"
        ))
    })
}

/// `window`: a length, or a pair of lengths before and after a row.
fn extent(object: &Bound<'_, PyAny>) -> PyResult<Window> {
    const NAME: &str = "window";
    let Ok(pair) = object.cast::<PyTuple>() else { return Length::new(object, NAME)?.window(NAME) };
    let parts: Vec<Bound<'_, PyAny>> = pair.iter().collect();
    let [before, after] = &parts[..] else {
        return Err(error::value_error(format!(
            "window: two lengths are wanted, before and after, not {}",
            parts.len()
        )));
    };
    let name = |at: usize| format!("{NAME}[{at}]");
    match (Length::new(before, &name(0))?, Length::new(after, &name(1))?) {
        (Length::Text(before), Length::Text(after)) => {
            Window::around(&before, &after).map_err(|why| of_table(why, NAME))
        }
        (Length::Rows(before), Length::Rows(after)) => {
            Ok(Window::rows_around(count(before, &name(0))?, count(after, &name(1))?))
        }
        _ => Err(of_table(TableError::MixedUnits { window: shown_in_message(object) }, NAME)),
    }
}

/// The arguments of `rolling` that say what the windows are.
pub(super) struct WindowArguments<'a, 'py> {
    pub(super) by: &'a Bound<'py, PyAny>,
    pub(super) window: &'a Bound<'py, PyAny>,
    pub(super) closed: Argument<String>,
    pub(super) center: Argument<bool>,
    pub(super) offset: Option<&'a Bound<'py, PyAny>>,
    pub(super) group: Option<Argument<Names>>,
    pub(super) route: Argument<String>,
}

/// A name, or a sequence of names.
pub(crate) struct Names(pub(super) Vec<String>);

impl<'py> ArgumentType<'py> for Names {
    const PLURAL: &'static str = "names";

    fn of(object: &Bound<'py, PyAny>) -> Result<Self, Refusal> {
        match object.is_instance_of::<PyString>() {
            true => String::of(object).map(|name| Self(vec![name])),
            false => crate::argument::List::of(object).map(|list| Self(list.0)),
        }
    }
}

/// The specification of the windows of `rolling`.
pub(super) struct Spec {
    pub(super) rolling: Rolling,
    /// The groups, then the key.
    pub(super) keys: Vec<String>,
}

impl WindowArguments<'_, '_> {
    pub(super) fn spec(self) -> PyResult<Spec> {
        let Self { by, window, closed, center, offset, group, route } = self;
        accept!(closed, center, group, route);
        let by = key(by)?;
        let mut window = extent(window)?.closed(choose("closed", &closed, &Closed::NAMED)?);
        if center {
            window = window.centered();
        }
        if let Some(offset) = offset {
            const NAME: &str = "offset";
            let moved = match Length::new(offset, NAME)? {
                Length::Text(_) if center => {
                    return Err(error::value_error(format!(
                        "{NAME}: a centred window begins half its length before the row; give an offset or center=True"
                    )));
                }
                Length::Text(text) => window.offset(&text),
                Length::Rows(rows) => {
                    let rows = i32::try_from(rows).map_err(|_| {
                        error::value_error(format!(
                            "{NAME}: {rows} rows are too many; give at most 2**31 - 1"
                        ))
                    })?;
                    window.shifted_rows(rows)
                }
            };
            window = moved.map_err(|why| of_table(why, NAME))?;
        }
        let groups = group.map_or_else(Vec::new, |Names(names)| names);
        let mut keys = groups.clone();
        keys.push(by.clone());
        let rolling =
            Rolling::new(by, window).group_by(groups).route(choose("route", &route, &Route::NAMED)?);
        rolling.check_names().map_err(|why| of_table(why, "group"))?;
        Ok(Spec { rolling, keys })
    }
}
