//! Windows of small tables give the results of polars and pandas, which `golden/make.py` has written.

use crate::on_ranks;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, UInt64Type};
use arrow_array::{ArrayRef, Float64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use halocline_table::{Aggregation, Closed, Interpolation, Rolling, Statistic, Table, Window, rolling};
use serde_json::Value;
use std::sync::Arc;

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.parse().unwrap()),
        number => Some(number.as_f64().unwrap()),
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

fn batch(table: &Value) -> RecordBatch {
    let groups =
        Arc::new(StringArray::from_iter_values(list(&table["group"]).iter().map(|v| v.as_str().unwrap())));
    let times = list(&table["time"]).iter().map(|v| v.as_i64().unwrap());
    let times = Arc::new(TimestampMicrosecondArray::from_iter_values(times)) as ArrayRef;
    let values = Arc::new(Float64Array::from_iter(list(&table["value"]).iter().map(number)));
    RecordBatch::try_from_iter_with_nullable([
        ("group", groups as ArrayRef, false),
        ("time", times, false),
        ("value", values, true),
    ])
    .unwrap()
}

fn window(case: &Value) -> Window {
    let window = match case["period"].as_str() {
        Some(period) => Window::period(period).unwrap(),
        None => Window::rows(case["rows"].as_u64().unwrap() as u32).unwrap(),
    };
    let window = match case["offset"].as_str() {
        Some(offset) => window.offset(offset).unwrap(),
        None => window,
    };
    let window = if case["centered"] == true { window.centered() } else { window };
    window.closed(match case["closed"].as_str().unwrap() {
        "left" => Closed::Left,
        "right" => Closed::Right,
        "both" => Closed::Both,
        _ => Closed::None,
    })
}

fn aggregation(case: &Value) -> Aggregation {
    let quantile = |q, interpolation| Statistic::Quantile { q, interpolation };
    let statistic = match case["statistic"].as_str().unwrap() {
        "sum" => Statistic::Sum,
        "mean" => Statistic::Mean,
        "min" => Statistic::Min,
        "max" => Statistic::Max,
        "count" => Statistic::Count,
        "first" => Statistic::First,
        "last" => Statistic::Last,
        "var" => Statistic::Var { ddof: 1 },
        "std" => Statistic::Std { ddof: 1 },
        "std0" => Statistic::Std { ddof: 0 },
        "median" => quantile(0.5, Interpolation::Linear),
        _ => quantile(
            case["quantile"].as_f64().unwrap(),
            match case["interpolation"].as_str().unwrap() {
                "nearest" => Interpolation::Nearest,
                "higher" => Interpolation::Higher,
                "lower" => Interpolation::Lower,
                "midpoint" => Interpolation::Midpoint,
                "linear" => Interpolation::Linear,
                _ => Interpolation::Equiprobable,
            },
        ),
    };
    let aggregation = Aggregation::new("value", statistic);
    match case["min_samples"].as_u64() {
        Some(values) => aggregation.min_samples(values as usize),
        None => aggregation,
    }
}

/// The results of a case over some ranks.
fn compute(rows: &RecordBatch, case: &Value, ranks: usize) -> Vec<Option<f64>> {
    let spec = Rolling::new("time", window(case)).columns(["value"]);
    let spec = if case["table"] == "groups" { spec.group_by(["group"]) } else { spec };
    let found = on_ranks(ranks, |comm| {
        let part = |rank: usize| rows.num_rows() * rank / ranks;
        let (start, end) = (part(comm.rank()), part(comm.rank() + 1));
        let table = Table::new(rows.schema(), vec![rows.slice(start, end - start)]).unwrap();
        let result = rolling(&table, &spec, &comm).unwrap().aggregate(&[aggregation(case)], 1).unwrap();
        match result.column(0).as_primitive_opt::<Float64Type>() {
            Some(column) => column.iter().collect::<Vec<_>>(),
            None => {
                result.column(0).as_primitive::<UInt64Type>().iter().map(|v| v.map(|v| v as f64)).collect()
            }
        }
    });
    found.concat()
}

fn is_same(found: Option<f64>, expected: Option<f64>, case: &Value) -> bool {
    let (Some(found), Some(expected)) = (found, expected) else { return found == expected };
    let exact = found == expected || found.is_nan() && expected.is_nan();
    match case["statistic"].as_str().unwrap() {
        "min" | "max" | "count" | "first" | "last" => exact,
        // The values are about 50; sums of some of them cancel.
        _ => exact || (found - expected).abs() <= 1e-12 * expected.abs().max(50.0),
    }
}

#[test]
fn results_are_those_of_polars_and_pandas() {
    let golden: Value = serde_json::from_str(include_str!("../golden/golden.json")).unwrap();
    for case in list(&golden["cases"]) {
        let rows = batch(&golden["tables"][case["table"].as_str().unwrap()]);
        let expected: Vec<Option<f64>> = list(&case["expected"]).iter().map(number).collect();
        assert_eq!(expected.len(), rows.num_rows());
        for ranks in [1, 3] {
            let found = compute(&rows, case, ranks);
            for (row, (found, expected)) in found.iter().zip(&expected).enumerate() {
                let of = || {
                    case.as_object().unwrap().iter().filter(|(key, _)| *key != "expected").collect::<Vec<_>>()
                };
                assert!(
                    is_same(*found, *expected, case),
                    "row {row}: {found:?}, not {expected:?}: {:?}",
                    of()
                );
            }
        }
    }
}
