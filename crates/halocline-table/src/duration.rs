//! Lengths of windows as text: `5s`, `250ms`, `1d12h`, `-2h`, and `5i` for integer keys.

use crate::error::TableError;

/// A length along the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    /// Nanoseconds.
    Time(i128),
    /// Units of an integer key.
    Index(i128),
}

/// Units with their nanoseconds. The first that the text begins with counts: `ms` comes before `m`.
const UNITS: &[(&str, i128)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
    ("w", 604_800_000_000_000),
];

/// Lengths are shorter, so that sums of some of them are exact.
const LONGEST: i128 = 1 << 116;

impl Length {
    /// Reads a text. A sign before it counts for all its parts.
    pub(crate) fn parse(text: &str) -> Result<Self, TableError> {
        let refuse = |why: String| TableError::Duration { text: text.to_owned(), why };
        let (sign, mut rest) = match text.strip_prefix('-') {
            Some(rest) => (-1, rest),
            None => (1, text.strip_prefix('+').unwrap_or(text)),
        };
        if rest.is_empty() {
            return Err(refuse("it has no number".to_owned()));
        }
        let (mut time, mut index) = (None::<i128>, None::<i128>);
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let (number, tail) = rest.split_at(digits);
            if number.is_empty() {
                return Err(refuse(format!("a number is expected at {tail:?}")));
            }
            let number = number.parse::<i64>().map_err(|_| refuse(format!("{number} exceeds 64 bits")))?;
            let add = |sum: Option<i128>, unit: i128| {
                let sum = sum.unwrap_or(0) + unit * i128::from(number);
                if sum < LONGEST {
                    Ok(Some(sum))
                } else {
                    Err(refuse("it is longer than any key reaches".to_owned()))
                }
            };
            if ["mo", "q", "y"].iter().any(|calendar| tail.starts_with(calendar)) {
                return Err(refuse("months, quarters and years differ in length".to_owned()));
            }
            rest = if let Some(tail) = tail.strip_prefix('i') {
                index = add(index, 1)?;
                tail
            } else {
                let known = UNITS.iter().find_map(|&(unit, ns)| Some((tail.strip_prefix(unit)?, ns)));
                let Some((tail, ns)) = known else {
                    return Err(refuse(format!("a unit is expected after {number}")));
                };
                time = add(time, ns)?;
                tail
            };
        }
        match (time, index) {
            (Some(time), None) => Ok(Self::Time(sign * time)),
            (None, Some(index)) => Ok(Self::Index(sign * index)),
            _ => Err(refuse("it mixes units of time with those of an integer key (i)".to_owned())),
        }
    }

    /// Nanoseconds, or units of the key.
    pub(crate) fn value(self) -> i128 {
        match self {
            Self::Time(value) | Self::Index(value) => value,
        }
    }

    /// Whether both are time, or both are units of an integer key.
    pub(crate) fn same_kind(self, other: Self) -> bool {
        matches!((self, other), (Self::Time(_), Self::Time(_)) | (Self::Index(_), Self::Index(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_polars_writes_them() {
        let second = 1_000_000_000;
        for (text, expected) in [
            ("5s", Length::Time(5 * second)),
            ("250ms", Length::Time(second / 4)),
            ("1m30s", Length::Time(90 * second)),
            ("-1d12h", Length::Time(-36 * 3600 * second)),
            ("+2w", Length::Time(14 * 86_400 * second)),
            ("7us3ns", Length::Time(7_003)),
            ("0s", Length::Time(0)),
            ("5i", Length::Index(5)),
            ("-3i", Length::Index(-3)),
        ] {
            assert_eq!(Length::parse(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn lengths_that_no_key_reaches_are_refused() {
        let century = format!("{}w", i64::MAX);
        assert!(Length::parse(&century).is_ok());
        let error = Length::parse(&century.repeat(40_000)).unwrap_err();
        assert!(error.to_string().contains("longer than any key reaches"), "{error}");
    }

    #[test]
    fn a_text_that_is_no_duration_is_refused_with_the_reason() {
        for (text, why) in [
            ("", "it has no number"),
            ("-", "it has no number"),
            ("s", "a number is expected at \"s\""),
            (" 5s", "a number is expected"),
            ("5", "a unit is expected after 5"),
            ("1.5s", "a unit is expected after 1"),
            ("5sx", "a number is expected at \"x\""),
            ("1mo", "months, quarters and years differ in length"),
            ("2y", "months, quarters"),
            ("1q", "months, quarters"),
            ("99999999999999999999s", "exceeds 64 bits"),
            ("5s3i", "mixes units"),
        ] {
            let error = Length::parse(text).unwrap_err();
            assert!(matches!(&error, TableError::Duration { .. }), "{error:?}");
            assert!(error.to_string().contains(why), "{text}: {error}");
        }
    }
}
