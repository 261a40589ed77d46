//! `halocline run rolling` as its users meet it: equal to one rank, files of all kinds, and what is said of bad input.

use crate::case::Case;
use arrow_array::{ArrayRef, Date32Array, Float32Array, Int64Array, RecordBatch};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use serde_json::Value;
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

const ROLLING: Case = Case("rolling");

#[test]
fn every_number_of_ranks_and_transport_gives_the_result_of_one_rank() {
    let folder = tempfile::tempdir().unwrap();
    for transport in ["thread", "shm"] {
        for ranks in [1, 2, 3, 4, 5, 8] {
            let window =
                ["--window 5d", "--window 200 --statistic median", "--window 90d --center --statistic sum"]
                    [ranks % 3];
            let route = ["auto", "relay", "direct"][ranks / 2 % 3];
            let args =
                format!("--ranks {ranks} --transport {transport} {window} --route {route} --no-plot --json");
            let report = ROLLING.report(folder.path(), &args);
            assert!(report["max_abs_diff"].as_f64() <= report["tolerance"].as_f64(), "{args}: {report}");
            assert_eq!((&report["rows"], &report["ranks"]), (&Value::from(8759), &Value::from(ranks)));
            assert_eq!(report["transport"], transport);
            assert_eq!(report["rows_sent"].as_u64() > Some(0), ranks > 1, "{args}: {report}");
        }
    }
}

#[test]
fn only_rows_that_windows_need_travel() {
    let folder = tempfile::tempdir().unwrap();
    let report = ROLLING.report(folder.path(), "--ranks 4 --transport thread --window 24 --no-plot --json");
    // Each of three borders: the 23 rows before it.
    assert_eq!((&report["rows_sent"], &report["route"]), (&Value::from(3 * 23), &Value::from("direct")));
    assert_eq!(report["different"], 0);
}

#[test]
fn plots_are_drawn_where_they_are_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let output = ROLLING.run(folder.path(), "--ranks 3 --transport thread");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("plot       rolling.png"), "{text}");
    assert!(text.contains("rolling mean of temp over 5d (closed right) by date"), "{text}");
    assert!(std::fs::read(folder.path().join("rolling.png")).unwrap().starts_with(b"\x89PNG"));
    ROLLING.report(folder.path(), "--ranks 3 --transport thread --no-check --plot a.svg");
    let picture = std::fs::read_to_string(folder.path().join("a.svg")).unwrap();
    for text in ["rank 0", "rank 2", "2010-03", "temp", "mean over 5d (closed right)", "NOT compared"] {
        assert!(picture.contains(text), "{text}");
    }
}

#[test]
fn rows_of_csv_files_are_read_wherever_a_part_begins() {
    let folder = tempfile::tempdir().unwrap();
    // Lines of many lengths, so that parts of the bytes begin anywhere in them; quotes, missing values, an unused column.
    let lines = (0..100).map(|row| match row % 4 {
        0 => format!("{row},,\"a, b\"\r\n"),
        1 => format!("{row}, {}.25 ,x\n", row * row * row),
        2 => format!("\"{row}\",nan,\n"),
        _ => format!("{row},-{row}e-1,{}\n", "y".repeat(row)),
    });
    let text: String = std::iter::once("key,\"the value\",other\n".to_owned()).chain(lines).collect();
    let text = text.replace("the value", "value");
    std::fs::write(folder.path().join("a.csv"), &text).unwrap();
    std::fs::write(folder.path().join("b.csv"), format!("\u{feff}{}", text.trim_end())).unwrap();
    for file in ["a.csv", "b.csv"] {
        for ranks in [1, 2, 7, 200] {
            let args = format!(
                "--csv {file} --by key --value value --window 5i --ranks {ranks} --transport thread --no-plot --json"
            );
            let report = ROLLING.report(folder.path(), &args);
            assert_eq!(
                (&report["rows"], &report["different"]),
                (&Value::from(100), &Value::from(0)),
                "{args}"
            );
        }
    }
}

fn write_parquet(
    path: &Path,
    rows: &RecordBatch,
    rows_of_a_group: usize,
    compression: parquet::basic::Compression,
) {
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(rows_of_a_group));
    let properties = properties.set_compression(compression).build();
    let mut writer =
        ArrowWriter::try_new(File::create(path).unwrap(), rows.schema(), Some(properties)).unwrap();
    writer.write(rows).unwrap();
    writer.close().unwrap();
}

#[test]
fn rows_of_parquet_files_are_read_wherever_a_part_begins() {
    use parquet::basic::{Compression, ZstdLevel};
    let folder = tempfile::tempdir().unwrap();
    let value = Arc::new(Float32Array::from_iter((0..1000).map(|row| (row % 7 > 0).then_some(row as f32))))
        as ArrayRef;
    let day = Arc::new(Date32Array::from_iter_values((0..1000).map(|row| row / 3))) as ArrayRef;
    let count = Arc::new(Int64Array::from_iter_values(0..1000)) as ArrayRef;
    let rows = RecordBatch::try_from_iter_with_nullable([
        ("value", value, true),
        ("count", count, true),
        ("day", day, true),
    ])
    .unwrap();
    for (group, compression) in [
        (1000, Compression::SNAPPY),
        (170, Compression::ZSTD(ZstdLevel::default())),
        (1, Compression::UNCOMPRESSED),
    ] {
        write_parquet(&folder.path().join("a.parquet"), &rows, group, compression);
        for ranks in [1, 3, 8] {
            let common =
                format!("--parquet a.parquet --by day --ranks {ranks} --transport thread --no-plot --json");
            let of_floats =
                ROLLING.report(folder.path(), &format!("{common} --value value --window 36h --closed both"));
            assert_eq!(
                (&of_floats["rows"], &of_floats["different"]),
                (&Value::from(1000), &Value::from(0)),
                "{common}"
            );
            let of_integers =
                ROLLING.report(folder.path(), &format!("{common} --value count --window 40 --statistic max"));
            assert_eq!(of_integers["different"], 0, "{common}");
        }
    }
}

#[test]
fn bad_arguments_are_refused_before_anything_starts() {
    let folder = tempfile::tempdir().unwrap();
    for (args, message) in [
        ("--window 0", "the window 0 rows has no length"),
        ("--window -5d", "`--window -5d`: a window has no negative length; give it without the sign"),
        ("--window=-3", "`--window -3`: a window has no negative length"),
        ("--window 4294967296", "`--window 4294967296`: a window has at most 4294967295 rows"),
        ("--group temp", "`--value temp` and `--group temp` name one column"),
        ("--window 5mo", "; or give a number of rows, such as 120"),
        ("--window 5d --closed up", "invalid value 'up'"),
        ("--csv a.csv", "--by <COLUMN>"),
        ("--csv a.csv --parquet b --by x --value y", "cannot be used with"),
        ("--by date --value date", "name one column"),
        ("--ranks 0", "0 ranks"),
        (
            "--ranks 4097 --transport thread",
            "`--ranks 4097` as threads of one process, which has at most 4096; give fewer, or `--transport mpi`",
        ),
    ] {
        let stderr = ROLLING.refusal(folder.path(), args, 2);
        assert!(stderr.contains(message), "{args}: {stderr}");
    }
    for (args, message) in [
        (
            "--by time",
            "seattle-temps.csv (built in) has no column \"time\"; its columns are \"date\", \"temp\"",
        ),
        ("--csv none.csv --by x --value y", "cannot read none.csv: No such file"),
        ("--plot a.pdf", "a plot is a PNG or SVG file"),
    ] {
        let stderr = ROLLING.refusal(folder.path(), args, 1);
        assert!(stderr.contains(message), "{args}: {stderr}");
    }
}

#[test]
fn an_output_that_is_the_input_or_another_output_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let text = "t,v\n1,1\n2,2\n";
    for name in ["v.csv", "v.png"] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    std::os::unix::fs::symlink("v.csv", folder.path().join("link.json")).unwrap();
    for (args, message) in [
        ("v.csv --no-plot --trace v.csv", "`--trace v.csv` and `--csv v.csv` are the same file"),
        ("v.csv --no-plot --trace link.json", "`--trace link.json` and `--csv v.csv` are the same file"),
        ("v.png --plot ./v.png", "give `--plot` another file"),
        ("v.csv --plot a.svg --trace ./a.svg", "`--trace ./a.svg` and `--plot a.svg` are the same file"),
    ] {
        for transport in ["thread", "shm"] {
            let args = format!("--by t --value v --window 2i --ranks 2 --transport {transport} --csv {args}");
            let stderr = ROLLING.refusal(folder.path(), &args, 2);
            assert!(stderr.contains(message), "{args}: {stderr}");
            assert_eq!(stderr.matches("error").count(), 1, "before any rank starts: {stderr}");
        }
    }
    for name in ["v.csv", "v.png"] {
        assert_eq!(std::fs::read_to_string(folder.path().join(name)).unwrap(), text);
    }
    assert!(!folder.path().join("a.svg").exists());
}

#[test]
fn bad_files_are_named_with_the_line() {
    let folder = tempfile::tempdir().unwrap();
    let rows = "2010-01-01,1\n".repeat(40);
    for (text, message) in [
        ("", "a.csv has no header"),
        ("t,v\n", "a.csv has no rows"),
        (
            &format!("t,v\n{rows}2010-13-01,1\n"),
            "line 42 of a.csv has \"2010-13-01\" in column \"t\", which is no time",
        ),
        (
            &format!("t,v\n{rows}2010-01-01,one\n{rows}"),
            "line 42 of a.csv has \"one\" in column \"v\", which is no number",
        ),
        (&format!("t,v\n{rows}2010-01-01\n{rows}"), "line 42 of a.csv has 1 fields, its header has 2"),
        (&format!("t,v\n{rows},1\n"), "line 42 of a.csv has no \"t\"; every row needs one"),
        (
            &format!("t,v\n{rows}2009-01-01,1\n"),
            "line 42 of a.csv has t = 2009-01-01 00:00:00, after 2010-01-01 00:00:00 in line 41 of a.csv; sort the file",
        ),
        // Blank lines count, whether they lie before the line or between parts.
        (&format!("t,v\n\n{rows}\r\n\n2010-01-01,one\n"), "line 45 of a.csv has \"one\""),
        (&format!("t,v\n\n{rows}\n\n2009-01-01,1\n"), "line 45 of a.csv has t = 2009-01-01"),
        (&format!("t,v\n{rows}2010-01-01,\"1\n2\"\n"), "line 42 of a.csv has a field in quotes that goes on"),
        (&format!("t,v\n{rows}2010-01-01,\"1\n"), "line 42 of a.csv has a field in quotes that goes on"),
        // Of several ranks with an error the first one says it.
        (
            &format!("t,v\n{}", "1.5,1\n".repeat(40)),
            "line 2 of a.csv has \"1.5\" in column \"t\", which is no integer or time",
        ),
        (
            "t,v\n1.5,1\n",
            "\"1.5\" in column \"t\", which is no integer or time; a key has no fraction, so multiply",
        ),
        (
            "t,v\n1,1\n1.5,1\n",
            "line 3 of a.csv has \"1.5\" in column \"t\", which is no integer; a key has no fraction",
        ),
        ("t,v\n9223372036854775808,1\n", "which is no integer of 64 bits"),
        ("t,v,t\n1,1,1\n", "a.csv has two columns \"t\"; rename one of them"),
        ("t,v\n1,1\n2010-01-01,2\n", "which is no integer"),
    ] {
        std::fs::write(folder.path().join("a.csv"), text).unwrap();
        for transport in ["thread", "shm"] {
            let args = format!(
                "--csv a.csv --by t --value v --ranks 4 --transport {transport} --no-plot --window 3"
            );
            let stderr = ROLLING.refusal(folder.path(), &args, 1);
            assert!(stderr.contains(message), "{args}, {text}: {stderr}");
            assert_eq!(stderr.matches("error").count(), 1, "said once: {stderr}");
        }
    }
}

#[test]
fn files_that_are_no_csv_are_named() {
    let folder = tempfile::tempdir().unwrap();
    for (bytes, message) in [
        (
            &b"\x1f\x8b\x08\x00"[..],
            "a.csv is compressed by gzip, it cannot be read as CSV; decompress it first, with gunzip",
        ),
        (b"PAR1....", "a.csv is a Parquet file, it cannot be read as CSV; give it as `--parquet`"),
        (b"\xff\xfet\0,\0", "a.csv is text in UTF-16"),
    ] {
        std::fs::write(folder.path().join("a.csv"), bytes).unwrap();
        let stderr = ROLLING.refusal(folder.path(), "--csv a.csv --by t --value v", 1);
        assert!(stderr.contains(message), "{stderr}");
    }
}

#[test]
fn the_only_column_of_numbers_is_the_value() {
    let folder = tempfile::tempdir().unwrap();
    let write = |text: &str| std::fs::write(folder.path().join("a.csv"), text).unwrap();
    write("t,station,v\n1,north,2.5\n2,north,3.5\n");
    let args = "--csv a.csv --by t --window 2 --ranks 2 --no-plot --json";
    assert_eq!(ROLLING.report(folder.path(), args)["value"], "v");
    write("t,v,w\n1,2.5,1\n2,3.5,1\n");
    let stderr = ROLLING.refusal(folder.path(), args, 2);
    let several =
        "a.csv has 2 columns of numbers besides the key and the groups: v, w; name one with `--value`";
    assert!(stderr.contains(several), "{stderr}");
    write("t,station\n1,north\n");
    let stderr = ROLLING.refusal(folder.path(), args, 2);
    assert!(
        stderr.contains("a.csv has no column of numbers besides the key and the groups; name one"),
        "{stderr}"
    );
    for (header, message) in [
        ("time,v,w", "a.csv has no column \"t\"; its columns are \"time\", \"v\", \"w\""),
        ("t,v,v", "a.csv has two columns \"v\"; rename one of them"),
        ("t,t,v", "a.csv has two columns \"t\"; rename one of them"),
    ] {
        write(&format!("{header}\n1,2,3\n2,3,4\n"));
        let stderr = ROLLING.refusal(folder.path(), args, 1);
        assert!(stderr.contains(message), "{stderr}");
    }
    write("t,v,w\n1,2,3\n");
    let stderr = ROLLING.refusal(folder.path(), &format!("{args} --group station"), 1);
    assert!(stderr.contains("a.csv has no column \"station\""), "{stderr}");
    let rows: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let values: ArrayRef = Arc::new(Float32Array::from(vec![1.0, 2.0]));
    let batch = RecordBatch::try_from_iter([("t", rows), ("x", values)]).unwrap();
    let file = File::create(folder.path().join("a.parquet")).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    assert_eq!(
        ROLLING.report(folder.path(), "--parquet a.parquet --by t --window 2 --no-plot --json")["value"],
        "x"
    );
    let stderr = ROLLING.refusal(folder.path(), "--parquet a.parquet --by time --window 2 --no-plot", 1);
    assert!(stderr.contains("a.parquet has no column \"time\"; its columns are \"t\", \"x\""), "{stderr}");
}

#[test]
fn a_quote_that_is_not_closed_is_named() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.csv"), "t,\"v\n1,2\n2,3\n").unwrap();
    let stderr = ROLLING.refusal(folder.path(), "--csv a.csv --by t --value v --no-plot", 1);
    assert!(
        stderr.contains("line 1 of a.csv has a field in quotes that goes on in the next line"),
        "{stderr}"
    );
}

#[test]
fn pipes_and_devices_are_no_tables() {
    let folder = tempfile::tempdir().unwrap();
    let made = Command::new("mkfifo").arg(folder.path().join("fifo")).status().unwrap();
    assert!(made.success());
    for file in ["fifo", "/dev/stdin"] {
        for option in ["--csv", "--parquet"] {
            let stderr =
                ROLLING.refusal(folder.path(), &format!("{option} {file} --by t --value v --no-plot"), 1);
            let message =
                format!("{file} is a pipe or a device, not a regular file; ranks read parts of it: store");
            assert!(stderr.contains(&message), "{stderr}");
        }
    }
}

#[test]
fn bad_parquet_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    // By pyarrow: two rows, compressed by gzip.
    std::fs::write(folder.path().join("a.parquet"), include_bytes!("gzip.parquet")).unwrap();
    let stderr = ROLLING.refusal(folder.path(), "--parquet a.parquet --by t --value v --window 2i", 1);
    let message = "a.parquet is compressed by gzip, which is not read here; write it with snappy or zstd";
    assert!(stderr.contains(message), "{stderr}");
    std::fs::write(folder.path().join("b.parquet"), "t,v\n2010-01-01,1\n").unwrap();
    let stderr = ROLLING.refusal(folder.path(), "--parquet b.parquet --by t --value v", 1);
    assert!(
        stderr.contains("b.parquet is no Parquet file; give the path of one, or a CSV file as `--csv`"),
        "{stderr}"
    );
    std::fs::write(folder.path().join("b.parquet"), "PAR1 and no end").unwrap();
    let stderr = ROLLING.refusal(folder.path(), "--parquet b.parquet --by t --value v", 1);
    assert!(stderr.contains("cannot read b.parquet as Parquet"), "{stderr}");
    let names = Arc::new(arrow_array::StringArray::from(vec!["x"])) as ArrayRef;
    let key = Arc::new(Int64Array::from(vec![1])) as ArrayRef;
    let rows = RecordBatch::try_from_iter([("t", key), ("v", names)]).unwrap();
    write_parquet(&folder.path().join("c.parquet"), &rows, 1, parquet::basic::Compression::UNCOMPRESSED);
    let stderr = ROLLING.refusal(folder.path(), "--parquet c.parquet --by t --value v", 1);
    assert!(stderr.contains("column \"v\" of c.parquet is Utf8; choose a column"), "{stderr}");
    let stderr = ROLLING.refusal(folder.path(), "--parquet c.parquet --by t --value w", 1);
    assert!(stderr.contains("c.parquet has no column \"w\""), "{stderr}");
    let none = Arc::new(Int64Array::from(Vec::<i64>::new())) as ArrayRef;
    let none = RecordBatch::try_from_iter([("t", none.clone()), ("v", none)]).unwrap();
    write_parquet(&folder.path().join("e.parquet"), &none, 1, parquet::basic::Compression::UNCOMPRESSED);
    let stderr = ROLLING.refusal(folder.path(), "--parquet e.parquet --by t --value v --window 2i", 1);
    assert!(
        stderr.contains("e.parquet has columns, but not a row; give a file with at least one row"),
        "{stderr}"
    );
    let key = Arc::new(Int64Array::from(vec![1, 3, 2])) as ArrayRef;
    let value = Arc::new(Float32Array::from(vec![1.0; 3])) as ArrayRef;
    let rows = RecordBatch::try_from_iter([("t", key), ("v", value.clone()), ("f", value)]).unwrap();
    write_parquet(&folder.path().join("d.parquet"), &rows, 1, parquet::basic::Compression::UNCOMPRESSED);
    let stderr =
        ROLLING.refusal(folder.path(), "--parquet d.parquet --by t --value v --window 2i --ranks 2", 1);
    assert!(stderr.contains("row 2 of d.parquet has t = 2, after 3 in row 1 of d.parquet"), "{stderr}");
    let stderr = ROLLING.refusal(folder.path(), "--parquet d.parquet --by f --value v --window 2i", 1);
    assert!(stderr.contains("column \"f\" of rank 0 is Float32, it cannot be the key"), "{stderr}");
}

#[test]
fn times_in_nanoseconds_as_pandas_writes_them_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let rows: String = (0..90).map(|row| format!("2010-01-01 00:00:00.{:09},{row}\n", row * 11)).collect();
    std::fs::write(folder.path().join("a.csv"), format!("t,v\n{rows}")).unwrap();
    let args = "--csv a.csv --by t --value v --window 55ns --statistic min --ranks 3 --transport thread --plot a.svg";
    let report = ROLLING.report(folder.path(), args);
    assert_eq!((&report["rows"], &report["different"]), (&Value::from(90), &Value::from(0)));
    // Three borders of ranks would lie on one place if the keys lost digits.
    assert_eq!(report["rows_sent"], 2 * 4);
    let picture = std::fs::read_to_string(folder.path().join("a.svg")).unwrap();
    assert!(picture.contains("e-7 s") && picture.contains("rank 1"), "{picture}");
}

#[test]
fn windows_stay_within_groups() {
    let folder = tempfile::tempdir().unwrap();
    // Groups of different lengths, of which the first has no name; keys begin anew in each.
    let rows = |group: &str, count: i64| -> String {
        (0..count).map(|row| format!("{row},{group},{}\n", row % 7)).collect()
    };
    let text = format!("t,place,v\n{}{}{}", rows("", 5), rows("Bergen", 40), rows("Oslo", 60));
    std::fs::write(folder.path().join("a.csv"), text).unwrap();
    let common = "--by t --value v --group place --window 10 --statistic sum --transport thread --plot a.svg";
    for ranks in [1, 2, 5] {
        let report = ROLLING.report(folder.path(), &format!("--csv a.csv {common} --ranks {ranks}"));
        assert_eq!((&report["rows"], &report["different"]), (&Value::from(105), &Value::from(0)));
        assert_eq!(report["groups"], serde_json::json!(["place"]));
    }
    let picture = std::fs::read_to_string(folder.path().join("a.svg")).unwrap();
    assert!(picture.contains("row, sorted by place, t"), "{picture}");
    assert!(picture.contains("in groups of place"), "{picture}");
    let place = Arc::new(Int64Array::from_iter_values((0..100).map(|row| row / 30))) as ArrayRef;
    let key = Arc::new(Int64Array::from_iter_values((0..100).map(|row| row % 30))) as ArrayRef;
    let value = Arc::new(Float32Array::from_iter_values((0..100).map(|row| row as f32))) as ArrayRef;
    let rows = RecordBatch::try_from_iter([("place", place), ("v", value), ("t", key)]).unwrap();
    write_parquet(&folder.path().join("a.parquet"), &rows, 17, parquet::basic::Compression::UNCOMPRESSED);
    let found = ROLLING.report(folder.path(), &format!("--parquet a.parquet {common} --ranks 4"));
    assert_eq!((&found["rows"], &found["different"]), (&Value::from(100), &Value::from(0)));
    let stderr = ROLLING.refusal(folder.path(), "--csv a.csv --by t --value v --group town", 1);
    assert!(stderr.contains("a.csv has no column \"town\""), "{stderr}");
    let stderr = ROLLING.refusal(folder.path(), "--csv a.csv --by t --value v --window 10", 1);
    assert!(stderr.contains("line 7 of a.csv has t = 0, after 4 in line 6 of a.csv"), "{stderr}");
}
