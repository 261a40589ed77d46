//! The environment variables `HALOCLINE_*`, as every crate reads them.
//!
//! An empty variable counts as unset. All variables share the same words for yes and no. Any other value is
//! an error of one form.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// Words for yes and no, case-insensitive.
const YES: [&str; 4] = ["1", "on", "yes", "true"];
const NO: [&str; 4] = ["0", "off", "no", "false"];

/// The variables with a restricted form, regardless of the crate, transport or device that reads them.
const FORMS: [(&str, Form); 7] = [
    ("HALOCLINE_CACHE_LIMIT", Form::Bytes),
    ("HALOCLINE_CHECK", Form::Switch),
    ("HALOCLINE_LL", Form::Bytes),
    ("HALOCLINE_MPI_DEVICE", Form::SwitchOrAuto),
    ("HALOCLINE_NODE_AWARE", Form::Switch),
    ("HALOCLINE_NODE_RANKS", Form::Number(1)),
    ("HALOCLINE_STREAM_WAITS", Form::Switch),
];

/// Variables that earlier versions read.
const FORMER: [(&str, Former); 4] = [
    ("HALOCLINE_COPY_ENGINE", Former::Removed("kernels do all copies, which is faster than copy engines")),
    ("HALOCLINE_FLAGS", Former::Renamed("HALOCLINE_LL")),
    ("HALOCLINE_MAPPINGS_BYTES", Former::Removed(MAPPINGS)),
    ("HALOCLINE_MAPPINGS_ENTRIES", Former::Removed(MAPPINGS)),
];
const MAPPINGS: &str = "other processes keep up to 1024 unused allocations mapped";

#[derive(Debug, Clone, Copy)]
enum Former {
    Renamed(&'static str),
    Removed(&'static str),
}

#[derive(Debug, Clone, Copy)]
enum Form {
    Switch,
    SwitchOrAuto,
    /// A number that is at least this.
    Number(u64),
    Bytes,
}

/// A variable that is set and not empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    name: &'static str,
    value: OsString,
}

/// A variable cannot be used.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VariableError {
    /// Its value is invalid.
    #[error("{name} is {found:?}, it should be {expected}; correct it, or unset it")]
    Value {
        /// The variable.
        name: &'static str,
        /// Its value.
        found: OsString,
        /// The valid values.
        expected: Cow<'static, str>,
    },
    /// It has another name now.
    #[error("{name} was renamed to {new_name}; set {new_name} instead, and unset {name}")]
    Renamed {
        /// The variable.
        name: &'static str,
        /// Its new name.
        new_name: &'static str,
    },
    /// It was removed.
    #[error("{name} was removed: {reason}; unset it")]
    Removed {
        /// The variable.
        name: &'static str,
        /// Why.
        reason: &'static str,
    },
}

impl VariableError {
    /// The variable.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Value { name, .. } | Self::Renamed { name, .. } | Self::Removed { name, .. } => name,
        }
    }
}

/// Shows the text, because `main` may return the error.
impl fmt::Debug for VariableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Variable {
    /// Reads a variable of this process; `None` if it is unset or empty.
    pub fn read(name: &'static str) -> Option<Self> {
        Self::given(name, std::env::var_os(name))
    }

    /// As [`Variable::read`], for a value from elsewhere.
    pub fn given(name: &'static str, value: Option<OsString>) -> Option<Self> {
        value.filter(|value| !value.is_empty()).map(|value| Self { name, value })
    }

    /// Checks all variables of this process, including those that only other transports or devices read: an
    /// invalid value should not go unnoticed until a later run. Refuses variables of earlier versions. Returns the first error.
    pub fn check_all() -> Result<(), VariableError> {
        Self::check_all_of(std::env::var_os)
    }

    fn check_all_of(lookup: impl Fn(&'static str) -> Option<OsString>) -> Result<(), VariableError> {
        for (name, former) in FORMER {
            match (Self::given(name, lookup(name)), former) {
                (None, _) => {}
                (Some(_), Former::Renamed(new_name)) => {
                    return Err(VariableError::Renamed { name, new_name });
                }
                (Some(_), Former::Removed(reason)) => return Err(VariableError::Removed { name, reason }),
            }
        }
        FORMS.iter().try_for_each(|&(name, form)| match (Self::given(name, lookup(name)), form) {
            (None, _) => Ok(()),
            (Some(variable), Form::Switch) => variable.switch().map(drop),
            (Some(variable), Form::SwitchOrAuto) => variable.switch_or_auto().map(drop),
            (Some(variable), Form::Number(least)) => variable.number(least..=u64::MAX).map(drop),
            (Some(variable), Form::Bytes) => variable.bytes().map(drop),
        })
    }

    /// Yes or no.
    pub fn switch(self) -> Result<bool, VariableError> {
        self.parse("on or off (or 1 and 0, yes and no, true and false)", word)
    }

    /// Yes, no, or `None` for `auto`.
    pub fn switch_or_auto(self) -> Result<Option<bool>, VariableError> {
        let parse = |text: &str| if text == "auto" { Some(None) } else { word(text).map(Some) };
        self.parse("auto, on or off", parse)
    }

    /// A whole number in this range.
    pub fn number(self, range: RangeInclusive<u64>) -> Result<u64, VariableError> {
        let expected = match (range.start(), range.end()) {
            (start, &u64::MAX) => format!("a whole number of at least {start}"),
            (start, end) => format!("a whole number from {start} to {end}"),
        };
        self.parse(expected, |text| digits(text).filter(|value| range.contains(value)))
    }

    /// A number of bytes, `None` for `never` or a word for no, or `Auto`.
    pub fn bytes(self) -> Result<Bytes, VariableError> {
        self.parse("a number of bytes, off, or auto", |text| match (text, word(text)) {
            ("auto", _) => Some(Bytes::Auto),
            ("never", _) | (_, Some(false)) => Some(Bytes::None),
            _ => digits(text).and_then(|value| usize::try_from(value).ok()).map(Bytes::Number),
        })
    }

    /// A path; `None` for a word for no.
    pub fn path_or_off(self) -> Option<PathBuf> {
        let is_off = self.value.to_str().and_then(word) == Some(false);
        (!is_off).then(|| self.path())
    }

    /// A path.
    pub fn path(self) -> PathBuf {
        PathBuf::from(self.value)
    }

    /// Parses the trimmed value. `expected` describes the valid values in the error.
    pub fn parse<T>(
        self,
        expected: impl Into<Cow<'static, str>>,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, VariableError> {
        let parsed = self.value.to_str().and_then(|text| parse(text.trim()));
        parsed.ok_or_else(|| self.refuse(expected))
    }

    /// The error that the value is not `expected`.
    pub fn refuse(self, expected: impl Into<Cow<'static, str>>) -> VariableError {
        VariableError::Value { name: self.name, found: self.value, expected: expected.into() }
    }
}

/// The number of bytes that a variable requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bytes {
    /// The library's choice.
    Auto,
    /// None.
    None,
    /// This many.
    Number(usize),
}

/// The meaning of a word for yes or no.
fn word(text: &str) -> Option<bool> {
    let is = |words: &[&str]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    if is(&YES) { Some(true) } else { is(&NO).then_some(false) }
}

/// Parses a number that consists of digits only, without a sign.
fn digits(text: &str) -> Option<u64> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    const NAME: &str = "HALOCLINE_EXAMPLE";

    fn given(value: &str) -> Variable {
        Variable::given(NAME, Some(value.into())).expect("it is not empty")
    }

    #[test]
    fn an_empty_variable_counts_as_unset() {
        assert_eq!(Variable::given(NAME, None), None);
        assert_eq!(Variable::given(NAME, Some(OsString::new())), None);
    }

    #[test]
    fn yes_and_no_have_one_set_of_words() {
        for (words, expected) in [(["1", "on", "YES", "True"], true), (["0", "Off", "no", " false "], false)]
        {
            for text in words {
                assert_eq!(given(text).switch(), Ok(expected), "{text}");
                assert_eq!(given(text).switch_or_auto(), Ok(Some(expected)), "{text}");
            }
        }
        assert_eq!(given("auto").switch_or_auto(), Ok(None));
        assert_eq!(given("OFF").bytes(), Ok(Bytes::None));
        assert_eq!(given("off").path_or_off(), None);
        assert_eq!(given("/tmp/off").path_or_off(), Some(PathBuf::from("/tmp/off")));
    }

    #[test]
    fn garbage_is_refused_with_one_form_of_message() {
        let errors = [
            given("maybe").switch().unwrap_err(),
            given("maybe").switch_or_auto().unwrap_err(),
            given("maybe").number(1..=9).unwrap_err(),
            given("maybe").bytes().unwrap_err(),
            given("maybe").parse("a token", |_| None::<()>).unwrap_err(),
        ];
        for error in errors {
            let text = error.to_string();
            assert!(text.starts_with("HALOCLINE_EXAMPLE is \"maybe\", it should be "), "{text}");
        }
        assert!(Variable { name: NAME, value: OsString::from_vec(vec![0xff]) }.switch().is_err());
    }

    #[test]
    fn every_variable_with_a_form_is_checked() {
        assert_eq!(Variable::check_all_of(|_| None), Ok(()));
        let is_former = |name| FORMER.iter().any(|(former, _)| *former == name);
        assert_eq!(Variable::check_all_of(|name| (!is_former(name)).then(|| "1".into())), Ok(()));
        for (set, _) in FORMS {
            match Variable::check_all_of(|name| (name == set).then(|| "maybe".into())) {
                Err(VariableError::Value { name, found, .. }) => {
                    assert_eq!((name, found), (set, "maybe".into()));
                }
                other => panic!("{set}: {other:?}"),
            }
        }
    }

    #[test]
    fn variables_of_earlier_versions_are_refused_and_name_their_successors() {
        let refused = |set| Variable::check_all_of(|name| (name == set).then(|| "1".into()));
        let (name, new_name) = ("HALOCLINE_FLAGS", "HALOCLINE_LL");
        assert_eq!(refused(name), Err(VariableError::Renamed { name, new_name }));
        let removed = refused("HALOCLINE_COPY_ENGINE");
        let is_removed = |error: &VariableError| matches!(error, VariableError::Removed { name: "HALOCLINE_COPY_ENGINE", reason } if !reason.is_empty());
        assert!(removed.as_ref().is_err_and(is_removed), "{removed:?}");
        for (name, _) in FORMER {
            assert_eq!(
                Variable::check_all_of(|set| (set == name).then(OsString::new)),
                Ok(()),
                "{name} is empty"
            );
        }
    }

    #[test]
    fn numbers_are_digits_alone_and_large_enough() {
        assert_eq!(given("7").number(7..=u64::MAX), Ok(7));
        for wrong in ["6", "+7", "-7", "7.5", "0x7", "99999999999999999999999"] {
            let text = given(wrong).number(7..=u64::MAX).unwrap_err().to_string();
            assert!(text.contains("it should be a whole number of at least 7;"), "{text}");
        }
        let text = given("10").number(7..=9).unwrap_err().to_string();
        assert!(text.contains("it should be a whole number from 7 to 9;"), "{text}");
        assert_eq!(given("1").bytes(), Ok(Bytes::Number(1)));
        assert_eq!(given("0").bytes(), Ok(Bytes::None));
        assert!(given("-1").bytes().is_err() && given("on").bytes().is_err());
    }
}
