//! What `fuzz/` reaches of the private readers. Part of no ordinary build.

use super::csv;
use super::input::{Columns, Part, Source, TableInputError};
use crate::error::CommandError;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, TimestampMicrosecondType, TimestampNanosecondType};
use std::borrow::Cow;

/// Key, bits of the value, group.
type Row = (Option<i64>, Option<u64>, Option<String>);

fn rows(source: &Source, part: Part) -> Result<Vec<Row>, CommandError> {
    let groups = ["g".to_owned()];
    let table = csv::read(source, Columns { by: "t", value: "v", groups: &groups }, part, |_| {})?;
    let mut rows = Vec::new();
    for batch in table.batches() {
        let (keys, values) = (batch.column(0), batch.column(1).as_primitive::<Float64Type>());
        let keys: Vec<Option<i64>> = if let Some(keys) = keys.as_primitive_opt::<Int64Type>() {
            keys.iter().collect()
        } else if let Some(keys) = keys.as_primitive_opt::<TimestampMicrosecondType>() {
            keys.iter().collect()
        } else {
            keys.as_primitive::<TimestampNanosecondType>().iter().collect()
        };
        let groups = batch.column(2).as_string::<i32>().iter().map(|group| group.map(str::to_owned));
        let values = values.iter().map(|value| value.map(f64::to_bits));
        rows.extend(
            keys.into_iter().zip(values).zip(groups).map(|((key, value), group)| (key, value, group)),
        );
    }
    Ok(rows)
}

/// A CSV file, after a byte for the number of ranks and for the header. The parts of the ranks have the rows of the whole file, or one of
/// them has an error as the whole file has.
pub fn csv(bytes: &[u8]) {
    let Some((&which, text)) = bytes.split_first() else { return };
    let size = usize::from(which % 8) + 1;
    let header = if which & 8 == 0 { &b"t,v,g\n"[..] } else { b"" };
    let text = [header, text].concat();
    let lines = text.iter().filter(|&&byte| byte == b'\n').count() as u64 + 1;
    let source = Source::Memory { name: "fuzz.csv", bytes: Cow::Owned(text) };
    let whole = rows(&source, Part::WHOLE);
    let parts: Result<Vec<_>, _> = (0..size).map(|rank| rows(&source, Part { rank, size })).collect();
    if let Err(CommandError::TableInput(
        TableInputError::Field { line, .. }
        | TableInputError::Fields { line, .. }
        | TableInputError::LineBreak { line, .. },
    )) = &whole
    {
        assert!((1..=lines).contains(line), "line {line} of {lines}");
    }
    match (whole, parts) {
        (Ok(whole), Ok(parts)) => assert_eq!(whole, parts.concat()),
        (Err(_), Err(_)) => {}
        (whole, parts) => panic!("one is refused: {whole:?}, {parts:?}"),
    }
}

/// Files as users have them.
pub fn files() -> Vec<Vec<u8>> {
    let texts = [
        "\x03 1,2.5,a\n2,,a\r\n\n3,nan,\"b, c\"\n",
        "\x072010-12-31 23:59,1,\n2011/01/01,-2e3,x\n",
        "\x0b\u{feff}t, \"v\",g,other\n2010-12-31T23:59:59.123456789Z,1,x,y\n2010-12-31T23:59:59+01:30,1,x,y",
        "\x02 1,\"1\n2\",a\n2,3,b\n",
        "\x01 1.5,1,a\n",
    ];
    texts.map(|text| text.as_bytes().to_vec()).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_as_users_have_them_are_read_or_refused_in_parts_as_in_whole() {
        files().iter().for_each(|bytes| csv(bytes));
    }

    /// Bytes that mean something in CSV, in a fixed random order (xorshift).
    #[test]
    fn random_files_are_read_or_refused_in_parts_as_in_whole() {
        let alphabet = b"0123456789,,,,\n\n\n\r\"\"\" .-:TZ+eabt\xff\x00";
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as usize
        };
        let seeds = files();
        for round in 0..20_000 {
            let mut bytes: Vec<u8> = match round % 2 {
                0 => (0..random() % 60).map(|_| alphabet[random() % alphabet.len()]).collect(),
                _ => seeds[random() % seeds.len()].clone(),
            };
            bytes.insert(0, random() as u8 % 16);
            for _ in 0..random() % 4 {
                let at = random() % bytes.len();
                bytes[at] = alphabet[random() % alphabet.len()];
            }
            csv(&bytes);
        }
    }
}
