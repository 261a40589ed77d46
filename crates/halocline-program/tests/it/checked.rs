//! Calls that were checked before, and accesses whose dimensions depend on each other.

use crate::source::{SCALE, SCALE_MANIFEST, build};
use halocline_program::{ArrayView, Given, ProgramError, Scalar};

fn view<'a>(memory: &'a mut [f64], extents: &'a [isize], strides: &'a [isize]) -> ArrayView<'a> {
    ArrayView::contiguous(memory, extents, strides).unwrap()
}

#[test]
fn a_checked_call_takes_other_scalars() {
    let built = build(SCALE);
    let program = built.load(SCALE_MANIFEST).unwrap();
    let mut a = [1.0, 2.0];
    let given: [Given<'_>; 2] = [view(&mut a, &[2], &[]).into(), 3.0.into()];
    let checked = program.check(&given).unwrap();
    let factor = program.position("factor").unwrap();
    assert!(program.is_independent(factor) && !program.is_independent(0) && !program.is_independent(7));
    for value in [None, Some(5.0), None] {
        // SAFETY: this program checked the call, and the array is still there.
        let called = unsafe {
            program.call_checked(
                &checked,
                |words| value.map_or(Ok(()), |value| words.set(factor, Scalar::Float(value))),
                |call| call(),
            )
        };
        called.unwrap().unwrap();
    }
    assert_eq!(a, [45.0, 90.0]);
}

#[test]
fn a_checked_call_refuses_a_scalar_of_another_type() {
    let built = build("void add(double *a, int n) { *a += n; }");
    let manifest = r#"{
        "format": 1, "program": "add", "interface": "c",
        "arguments": [
            {"kind": "array", "name": "a", "type": "float64", "dimensions": []},
            {"kind": "scalar", "name": "n", "type": "int32"}],
        "parameters": ["a", "n"]}"#;
    let program = built.load(manifest).unwrap();
    let mut a = [1.0];
    let checked = program.check(&[view(&mut a, &[], &[]).into(), 1.into()]).unwrap();
    let set = |value: f64| {
        // SAFETY: this program checked the call, and the array is still there.
        unsafe { program.call_checked(&checked, |words| words.set(1, Scalar::Float(value)), |call| call()) }
    };
    assert!(matches!(set(3.7), Err(ProgramError::NotIntegral { .. })));
    set(4.0).unwrap().unwrap();
    assert_eq!(a, [5.0]);
}

/// Sums a window of a plane: rows `first` to before `end`, with a border of one column.
const PLANE: &str = "
    void plane(const double *a, int m, int first, int end, int columns, double *sum) {
        *sum = 0;
        for (int i = first; i < end; i++) for (int j = 0; j < columns + 1; j++) *sum += a[i * m + j];
    }";
const PLANE_MANIFEST: &str = r#"{
    "format": 1, "program": "plane", "interface": "c",
    "arguments": [
        {"kind": "array", "name": "a", "type": "float64", "access": "read",
         "dimensions": [{"name": "I", "stride": "m"}, {"name": "J", "stride": 1}],
         "accesses": [
            {"indices": [["first", "end"], [0, "columns + 1"]], "over": [["first", "end"]]},
            {"indices": [["first", "end"], null]}]},
        {"kind": "scalar", "name": "first", "type": "int32"},
        {"kind": "scalar", "name": "end", "type": "int32"},
        {"kind": "scalar", "name": "columns", "type": "int32"},
        {"kind": "array", "name": "sum", "type": "float64", "dimensions": []}],
    "symbols": [{"name": "m", "type": "int32"}],
    "parameters": ["a", "m", "first", "end", "columns", "sum"]}"#;

#[test]
fn an_access_of_no_iteration_needs_no_memory() {
    let built = build(PLANE);
    let program = built.load(PLANE_MANIFEST).unwrap();
    let (mut a, mut sum) = ([1.0; 6], [0.0]);
    let (a, sum_of) = (view(&mut a, &[2, 3], &[24, 8]), view(&mut sum, &[], &[]));
    let call = |first: i32, end: i32, columns: i32| {
        program.call(&[a.into(), first.into(), end.into(), columns.into(), sum_of.into()])
    };
    call(0, 2, 2).unwrap();
    let refused = call(0, 2, 3).unwrap_err().to_string();
    assert_eq!(
        refused,
        "argument a of program plane has indices 0 to 3 (without the end) in dimension 1 (J), the program accesses 0 to 4 (columns + \
         1); give a larger array or a smaller domain"
    );
    assert!(matches!(call(1, 3, 1), Err(ProgramError::Bounds { .. })));
    // No row, so no column either.
    call(9, 9, 3).unwrap();
    assert_eq!(sum, [0.0]);
}
