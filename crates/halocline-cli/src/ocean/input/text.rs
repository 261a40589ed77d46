//! A reader for numbers separated by white space, which knows the line of each of them.

use super::InputError;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Reads the numbers of a text file in their order.
pub struct Numbers<'a> {
    file: &'static str,
    rest: &'a [u8],
    line: usize,
}

impl<'a> Numbers<'a> {
    /// Starts at the beginning of `text`, the content of `file`.
    pub fn new(file: &'static str, text: &'a [u8]) -> Self {
        Self { file, rest: text, line: 1 }
    }

    /// A whole number in `range`. `what` names it in errors.
    pub fn integer(&mut self, range: RangeInclusive<usize>, what: &str) -> Result<usize, InputError> {
        let expected = || format!("{what}, a whole number from {} to {}", range.start(), range.end());
        let value = self.parse(&expected)?;
        if range.contains(&value) { Ok(value) } else { Err(self.wrong(value.to_string(), expected())) }
    }

    /// A finite number in `range`. `what` names it in errors.
    pub fn real(&mut self, range: RangeInclusive<f64>, what: &str) -> Result<f64, InputError> {
        let expected = || format!("{what}, a number from {} to {}", range.start(), range.end());
        let value: f64 = self.parse(&expected)?;
        // Comparisons with NaN are false: it is in no range.
        if range.contains(&value) { Ok(value) } else { Err(self.wrong(value.to_string(), expected())) }
    }

    /// Checks that only white space is left.
    pub fn end(mut self) -> Result<(), InputError> {
        match self.token() {
            None => Ok(()),
            Some(token) => Err(self.wrong(shown(token), "the end of the file".to_owned())),
        }
    }

    fn parse<T: FromStr>(&mut self, expected: &dyn Fn() -> String) -> Result<T, InputError> {
        let Some(token) = self.token() else {
            return Err(InputError::CutShort { file: self.file, line: self.line, expected: expected() });
        };
        // A number may have lost its last digits with the end of the file.
        if self.rest.is_empty() {
            let expected = format!("the line end after {}", expected());
            return Err(InputError::CutShort { file: self.file, line: self.line, expected });
        }
        let number = std::str::from_utf8(token).ok().and_then(|token| token.parse().ok());
        number.ok_or_else(|| self.wrong(shown(token), expected()))
    }

    /// The error for the last value, if the caller finds it wrong.
    pub fn refuse(&self, found: String, expected: &str) -> InputError {
        self.wrong(found, expected.to_owned())
    }

    fn wrong(&self, found: String, expected: String) -> InputError {
        InputError::Text { file: self.file, line: self.line, found, expected }
    }

    fn token(&mut self) -> Option<&'a [u8]> {
        let start = self.rest.iter().position(|byte| !byte.is_ascii_whitespace());
        let (space, rest) = self.rest.split_at(start.unwrap_or(self.rest.len()));
        // A file that ends in a newline ends in the line before it.
        let newlines = space.iter().filter(|&&byte| byte == b'\n').count();
        self.line += if rest.is_empty() { newlines.saturating_sub(1) } else { newlines };
        let length = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
        let (token, rest) = rest.split_at(length);
        self.rest = rest;
        (!token.is_empty()).then_some(token)
    }
}

/// A token as an error shows it: at most 40 characters.
fn shown(token: &[u8]) -> String {
    String::from_utf8_lossy(token).chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(text: &str) -> Numbers<'_> {
        Numbers::new("a.out", text.as_bytes())
    }

    #[test]
    fn numbers_are_read_over_lines() {
        let mut text = numbers("3\n 1.5 -2\n");
        assert_eq!(text.integer(0..=9, "a count").unwrap(), 3);
        assert_eq!(text.real(0.0..=9.0, "x").unwrap(), 1.5);
        assert_eq!(text.real(-9.0..=9.0, "y").unwrap(), -2.0);
        text.end().unwrap();
    }

    #[test]
    fn the_end_of_a_file_cut_short_names_its_last_line() {
        let mut text = numbers("1 2\n3\n");
        for _ in 0..3 {
            text.integer(0..=9, "a count").unwrap();
        }
        let error = text.integer(0..=9, "corner 2 of triangle 1").unwrap_err().to_string();
        let expected = "a.out is cut short: it ends in line 2, where corner 2 of triangle 1, a whole number \
                        from 0 to 9 is missing; copy or write the whole file again";
        assert_eq!(error, expected);
    }

    #[test]
    fn invalid_numbers_are_named_with_their_line() {
        let error = numbers("\n\nseven\n").integer(0..=9, "a count").unwrap_err().to_string();
        assert_eq!(
            error,
            "a.out, line 3: found \"seven\", expected a count, a whole number from 0 to 9; correct it there"
        );
        let error = numbers("10\n").integer(0..=9, "a count").unwrap_err().to_string();
        assert_eq!(
            error,
            "a.out, line 1: found \"10\", expected a count, a whole number from 0 to 9; correct it there"
        );
        let error = numbers("nan\n").real(-90.0..=90.0, "a latitude").unwrap_err().to_string();
        assert_eq!(
            error,
            "a.out, line 1: found \"NaN\", expected a latitude, a number from -90 to 90; correct it there"
        );
        assert!(numbers("\u{ff}\n").integer(0..=9, "a count").is_err());
        assert!(numbers("-1\n").integer(0..=9, "a count").is_err());
        assert!(numbers("1.0\n").integer(0..=9, "a count").is_err());
    }

    #[test]
    fn a_last_number_that_may_have_lost_digits_is_refused() {
        let mut text = numbers("1 2");
        text.integer(0..=9, "a count").unwrap();
        let error = text.integer(0..=9, "a count").unwrap_err().to_string();
        let expected = "a.out is cut short: it ends in line 1, where the line end after a count, a whole number \
                        from 0 to 9 is missing; copy or write the whole file again";
        assert_eq!(error, expected);
    }

    #[test]
    fn more_than_expected_is_refused() {
        let error = numbers("1\n2\n").end().unwrap_err().to_string();
        assert_eq!(error, "a.out, line 1: found \"1\", expected the end of the file; correct it there");
    }
}
