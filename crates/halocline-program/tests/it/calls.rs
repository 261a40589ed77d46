//! Calls and prepared calls.

use crate::source::{SCALE, SCALE_MANIFEST, build};
use halocline_program::{ArrayView, Device, Given, ProgramError, RawArray, Scalar, ScalarType};

fn view<'a>(memory: &'a mut [f64], extents: &'a [isize], strides: &'a [isize]) -> ArrayView<'a> {
    ArrayView::contiguous(memory, extents, strides).unwrap()
}

#[test]
fn a_call_passes_the_parts_of_an_array() {
    let built = build(SCALE);
    let program = built.load(SCALE_MANIFEST).unwrap();
    let mut a = [1.0, 2.0, 3.0];
    program.call(&[view(&mut a, &[3], &[]).into(), 2.into()]).unwrap();
    assert_eq!(a, [2.0, 4.0, 6.0]);
    assert_eq!(program.states(), 0);
}

#[test]
fn a_negative_stride_begins_at_the_last_element() {
    let built = build(SCALE);
    let program = built.load(SCALE_MANIFEST).unwrap();
    let mut a = [1.0, 2.0, 3.0, 4.0, 5.0];
    let raw = RawArray {
        address: a[4..].as_mut_ptr().cast(),
        element: ScalarType::Float64,
        extents: &[2],
        strides: &[-16],
        device: Device::Host,
        is_writable: true,
    };
    // Its pointer has the provenance of the last element alone, so it is made anew from the whole.
    let raw = RawArray { address: a.as_mut_ptr().wrapping_add(4).cast(), ..raw };
    // SAFETY: the elements 4 and 2 are within the array, which nothing else accesses.
    let reversed = unsafe { ArrayView::from_raw(raw) };
    program.call(&[reversed.into(), 10.0.into()]).unwrap();
    assert_eq!(a, [1.0, 2.0, 30.0, 4.0, 50.0]);
}

#[test]
fn an_array_without_dimensions_is_a_number() {
    let built = build(SCALE);
    let program = built.load(SCALE_MANIFEST).unwrap();
    let (mut a, mut factor) = ([1.0, 2.0], [3.0]);
    let factor = view(&mut factor, &[], &[]);
    program.call(&[view(&mut a, &[2], &[]).into(), factor.into()]).unwrap();
    assert_eq!(a, [3.0, 6.0]);
}

#[test]
fn a_prepared_call_takes_other_numbers_without_being_prepared_again() {
    let built = build(SCALE);
    let program = built.load(SCALE_MANIFEST).unwrap();
    let mut a = [1.0, 2.0];
    let mut call = program.prepare(&[view(&mut a, &[2], &[]).into(), 2.0.into()]).unwrap();
    call.call().unwrap();
    call.set(program.position("factor").unwrap(), 5.0).unwrap();
    call.call().unwrap();
    let refused = call.set(0, 1.0);
    assert!(matches!(refused, Err(ProgramError::PreparedArray { .. })), "{refused:?}");
    assert!(matches!(call.set(7, 1.0), Err(ProgramError::Unknown { .. })));
    call.call().unwrap();
    drop(call);
    assert_eq!(a, [50.0, 100.0]);
}

/// Sums `n` elements from `first` on.
const WINDOW: &str = "
    void window(const double *a, int first, int n, double *sum) {
        *sum = 0;
        for (int i = 0; i < n; i++) *sum += a[first + i];
    }";
const WINDOW_MANIFEST: &str = r#"{
    "format": 1, "program": "window", "interface": "c",
    "arguments": [
        {"kind": "array", "name": "a", "type": "float64", "access": "read",
         "dimensions": [{"name": "I", "stride": 1, "covers": ["first", "first + n"]}]},
        {"kind": "scalar", "name": "first", "type": "int32"},
        {"kind": "scalar", "name": "n", "type": "int32"},
        {"kind": "array", "name": "sum", "type": "float64", "dimensions": []}],
    "parameters": ["a", "first", "n", "sum"]}"#;

#[test]
fn a_prepared_call_checks_the_bounds_again_when_a_number_moves_them() {
    let built = build(WINDOW);
    let program = built.load(WINDOW_MANIFEST).unwrap();
    let (mut a, mut sum) = ([1.0, 2.0, 3.0, 4.0], [0.0]);
    let given: [Given<'_>; 4] =
        [view(&mut a, &[4], &[]).into(), 0.into(), 2.into(), view(&mut sum, &[], &[]).into()];
    let mut call = program.prepare(&given).unwrap();
    call.set(1, 2).unwrap();
    call.call().unwrap();
    let refused = call.set(2, 3);
    assert!(
        matches!(&refused, Err(ProgramError::Bounds { needs, .. }) if &**needs == "2 (first) to 5 (first + n)")
    );
    call.call().unwrap();
    drop(call);
    assert_eq!(sum, [7.0]);
}

#[test]
fn an_origin_moves_the_indices() {
    let built = build(WINDOW);
    let program = built.load(WINDOW_MANIFEST).unwrap();
    let (mut a, mut sum) = ([1.0, 2.0], [0.0]);
    let a = view(&mut a, &[2], &[]).with_origin(&[1]);
    let sum = view(&mut sum, &[], &[]);
    let refused = program.call(&[a.into(), 0.into(), 2.into(), sum.into()]);
    let text = refused.unwrap_err().to_string();
    assert_eq!(
        text,
        "argument a of program window has indices 1 to 3 (without the end) in dimension 0 (I), the program accesses 0 (first) to \
         2 (first + n); give a larger array or a smaller domain"
    );
    let refused = program.call(&[a.into(), 1.into(), i32::MAX.into(), sum.into()]);
    assert!(matches!(refused, Err(ProgramError::Bounds { .. })), "{refused:?}");
    // No index: no bound.
    program.call(&[a.into(), 0.into(), 0.into(), sum.into()]).unwrap();
}

#[test]
fn optional_numbers_follow_from_the_arrays() {
    let built = build(SCALE);
    let manifest = SCALE_MANIFEST.replace(
        r#"{"kind": "scalar", "name": "factor", "type": "float64"}],"#,
        r#"{"kind": "scalar", "name": "factor", "type": "float64"},
           {"kind": "scalar", "name": "n", "type": "int32", "optional": true}],"#,
    );
    let manifest = manifest.replace(r#"{"name": "n", "type": "int32"}, {"name": "s""#, r#"{"name": "s""#);
    let program = built.load(&manifest).unwrap();
    let mut a = [1.0, 2.0];
    let a = view(&mut a, &[2], &[]);
    program.call(&[a.into(), 2.0.into()]).unwrap();
    program.call(&[a.into(), 2.0.into(), Given::Absent]).unwrap();
    program.call(&[a.into(), 2.0.into(), 2.into()]).unwrap();
    let refused = program.call(&[a.into(), 2.0.into(), 3.into()]);
    assert!(matches!(refused, Err(ProgramError::Contradiction { .. })), "{refused:?}");
    let mut call = program.prepare(&[a.into(), 2.0.into()]).unwrap();
    assert!(matches!(call.set(2, Scalar::Int(1)), Err(ProgramError::Contradiction { .. })));
    call.set(2, 2).unwrap();
    call.call().unwrap();
}
