//! Ready-made statistics, as arguments give them.

use crate::argument::{Argument, ArgumentType, Get, List, Refusal, accept, choose, shown_in_message};
use crate::error;
use halocline_table::{Aggregation, Interpolation, Statistic};
use pyo3::prelude::*;
use pyo3::types::{PyMapping, PyString};

const INTERPOLATIONS: [(&str, Interpolation); 6] = [
    ("linear", Interpolation::Linear),
    ("nearest", Interpolation::Nearest),
    ("lower", Interpolation::Lower),
    ("higher", Interpolation::Higher),
    ("midpoint", Interpolation::Midpoint),
    ("equiprobable", Interpolation::Equiprobable),
];

/// The statistics of these names; the default of each parameter.
const STATISTICS: [(&str, Statistic); 11] = [
    ("sum", Statistic::Sum),
    ("mean", Statistic::Mean),
    ("min", Statistic::Min),
    ("max", Statistic::Max),
    ("count", Statistic::Count),
    ("var", Statistic::Var { ddof: 1 }),
    ("std", Statistic::Std { ddof: 1 }),
    ("first", Statistic::First),
    ("last", Statistic::Last),
    ("median", MEDIAN),
    ("quantile", MEDIAN),
];

const MEDIAN: Statistic = Statistic::Quantile { q: 0.5, interpolation: Interpolation::Linear };

#[doc = doc!("Statistic")]
#[pyclass(frozen, module = "halocline", name = "Statistic")]
#[derive(Clone)]
pub(crate) struct PyStatistic {
    statistic: Statistic,
    /// The last part of the result's name.
    word: String,
    /// The result's whole name, if one is given.
    result: Option<String>,
}

impl PyStatistic {
    /// One that has no parameters, or the defaults.
    fn named(word: &str, argument: &str) -> PyResult<Self> {
        let plain = &STATISTICS[..STATISTICS.len() - 1];
        if word == "quantile" {
            return Err(error::value_error(format!(
                "{argument}: 'quantile' needs q, from 0 to 1; give halocline.Statistic('quantile', q=0.9)"
            )));
        }
        Ok(Self { statistic: choose(argument, word, plain)?, word: word.to_owned(), result: None })
    }

    fn of_column(self, column: &str, min_samples: Option<usize>) -> Aggregation {
        let name = self.result.unwrap_or_else(|| format!("{column}_{}", self.word));
        let aggregation = Aggregation::new(column, self.statistic).named(name);
        match min_samples {
            Some(values) => aggregation.min_samples(values),
            None => aggregation,
        }
    }
}

#[pymethods]
impl PyStatistic {
    #[new]
    #[pyo3(
        signature = (name, *, q = None, interpolation = None, ddof = None, result = None),
        text_signature = "(name, *, q=None, interpolation=None, ddof=None, result=None)"
    )]
    fn new(
        name: Argument<String>,
        q: Option<Argument<f64>>,
        interpolation: Option<Argument<String>>,
        ddof: Option<Argument<u8>>,
        result: Option<Argument<String>>,
    ) -> PyResult<Self> {
        accept!(name, q, interpolation, ddof, result);
        let foreign = |parameter: &str, of: &str| {
            Err(error::value_error(format!("{parameter}: it is a parameter of {of}, not of '{name}'")))
        };
        let mut word = name.clone();
        let statistic = match choose("name", &name, &STATISTICS)? {
            Statistic::Quantile { .. } if name == "quantile" => {
                let q = q.ok_or_else(|| error::value_error("q: 'quantile' needs a number from 0 to 1"))?;
                if !(0.0..=1.0).contains(&q) {
                    return Err(error::value_error(format!("q: a number from 0 to 1 is wanted, not {q}")));
                }
                word = format!("quantile_{q}");
                let interpolation = match interpolation {
                    Some(name) => choose("interpolation", &name, &INTERPOLATIONS)?,
                    None => Interpolation::default(),
                };
                Statistic::Quantile { q, interpolation }
            }
            _ if q.is_some() => return foreign("q", "'quantile'"),
            _ if interpolation.is_some() => return foreign("interpolation", "'quantile'"),
            other => other,
        };
        let statistic = match (statistic, ddof) {
            (other, None) => other,
            (Statistic::Var { .. }, Some(ddof)) => Statistic::Var { ddof },
            (Statistic::Std { .. }, Some(ddof)) => Statistic::Std { ddof },
            _ => return foreign("ddof", "'var' and 'std'"),
        };
        Ok(Self { statistic, word, result })
    }

    fn __repr__(&self) -> String {
        let result = self.result.as_ref().map_or(String::new(), |name| format!(", result={name:?}"));
        match self.statistic {
            Statistic::Quantile { q, interpolation } if self.word != "median" => {
                format!("Statistic('quantile', q={q}, interpolation='{interpolation}'{result})")
            }
            Statistic::Var { ddof } | Statistic::Std { ddof } => {
                format!("Statistic('{}', ddof={ddof}{result})", self.word)
            }
            _ => format!("Statistic('{}'{result})", self.word),
        }
    }
}

/// The statistic that an object stands for.
fn statistic(object: &Bound<'_, PyAny>, argument: &str) -> PyResult<PyStatistic> {
    if let Ok(given) = object.cast::<PyStatistic>() {
        return Ok(given.get().clone());
    }
    match object.cast::<PyString>() {
        Ok(word) => PyStatistic::named(&word.to_string_lossy(), argument),
        Err(_) => Err(error::type_error(format!(
            "{argument}: the name of a statistic or a halocline.Statistic is wanted, not {}",
            shown_in_message(object)
        ))),
    }
}

/// One statistic, or a list of them.
fn statistics(object: &Bound<'_, PyAny>, argument: &str) -> PyResult<Vec<PyStatistic>> {
    if object.is_instance_of::<PyString>() || object.is_instance_of::<PyStatistic>() {
        return Ok(vec![statistic(object, argument)?]);
    }
    let List(all) = Argument::<List<Bound<'_, PyAny>>>::from(object).get(argument).map_err(|_| {
        error::type_error(format!(
            "{argument}: the name of a statistic, a halocline.Statistic or a list of them is wanted, not {}",
            shown_in_message(object)
        ))
    })?;
    let named = |(at, one): (usize, &Bound<'_, PyAny>)| statistic(one, &format!("{argument}[{at}]"));
    all.iter().enumerate().map(named).collect()
}

/// The statistics to compute of each window, and their columns.
pub(super) struct Statistics {
    pub(super) aggregations: Vec<Aggregation>,
    pub(super) columns: Vec<String>,
}

/// The statistics of each window.
pub(super) enum Wanted {
    /// Statistics of all columns but the key and the groups.
    OfAll(Vec<PyStatistic>),
    /// Statistics of some columns.
    Of(Vec<(String, PyStatistic)>),
}

impl Wanted {
    pub(super) fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        const NAME: &str = "aggregate";
        let Ok(mapping) = object.cast::<PyMapping>() else {
            return statistics(object, NAME).map(Self::OfAll);
        };
        let mut of = Vec::new();
        for entry in mapping.items()? {
            let (column, asked): (Bound<'_, PyAny>, Bound<'_, PyAny>) = entry.extract()?;
            let name = String::of(&column).map_err(|refusal: Refusal| refusal.of(NAME))?;
            for one in statistics(&asked, &format!("{NAME}[{name:?}]"))? {
                of.push((name.clone(), one));
            }
        }
        Ok(Self::Of(of))
    }

    /// The columns that are needed; `None`: all.
    pub(super) fn columns(&self) -> Option<Vec<String>> {
        match self {
            Self::OfAll(_) => None,
            Self::Of(of) => Some(of.iter().map(|(column, _)| column.clone()).collect()),
        }
    }

    /// Statistics of columns of a table with these columns, besides those in `keys`. The names of results differ from each other and
    /// from those of the keys.
    pub(super) fn of<'a>(
        self,
        columns: impl Iterator<Item = &'a str>,
        keys: &[String],
        min_samples: Option<usize>,
    ) -> PyResult<Statistics> {
        let pairs = match self {
            Self::Of(pairs) => pairs,
            Self::OfAll(all) => columns
                .filter(|column| !keys.iter().any(|key| key == column))
                .flat_map(|column| all.iter().map(move |one| (column.to_owned(), one.clone())))
                .collect(),
        };
        let mut names: Vec<&str> = keys.iter().map(String::as_str).collect();
        let mut named = Vec::new();
        for (column, one) in &pairs {
            named.push(one.result.clone().unwrap_or_else(|| format!("{column}_{}", one.word)));
        }
        for name in &named {
            if names.contains(&name.as_str()) {
                return Err(error::value_error(format!(
                    "aggregate: two columns of the result are named {name:?}; give halocline.Statistic(..., result=...)"
                )));
            }
            names.push(name);
        }
        let columns = pairs.iter().map(|(column, _)| column.clone()).collect();
        let aggregations =
            pairs.into_iter().map(|(column, one)| one.of_column(&column, min_samples)).collect();
        Ok(Statistics { aggregations, columns })
    }
}
