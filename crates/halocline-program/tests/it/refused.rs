//! Arguments that are refused before the program is entered.

use crate::source::{SCALE, SCALE_MANIFEST, build};
use halocline_program::{ArrayView, Device, Given, Program, ProgramError, RawArray, Scalar, ScalarType};

const RAW: RawArray<'static> = RawArray {
    address: std::ptr::without_provenance_mut(0x1000),
    element: ScalarType::Float64,
    extents: &[3],
    strides: &[8],
    device: Device::Host,
    is_writable: true,
};

/// A view without memory: every call with it has to be refused.
fn nowhere<'a>(raw: RawArray<'a>) -> Given<'a> {
    // SAFETY: the call is refused before the program accesses the memory.
    Given::Array(unsafe { ArrayView::from_raw(raw) })
}

fn refusal(program: &Program, given: &[Given<'_>]) -> ProgramError {
    let error = program.call(given).unwrap_err();
    assert_eq!(program.prepare(given).err(), Some(error.clone()));
    assert!(error.to_string().contains("program scale"), "{error}");
    error
}

#[test]
fn wrong_numbers_of_arguments_are_refused() {
    let built = build(SCALE);
    let program = built.load(SCALE_MANIFEST).unwrap();
    let error = refusal(&program, &[nowhere(RAW)]);
    assert_eq!(error.to_string(), "program scale lacks argument factor; it takes a, factor");
    let error = refusal(&program, &[nowhere(RAW), 1.into(), 2.into()]);
    assert!(matches!(error, ProgramError::Extra { given: 3, expected: 2, .. }), "{error:?}");
    let error = refusal(&program, &[Given::Absent, 1.into()]);
    assert!(matches!(error, ProgramError::Missing { .. }), "{error:?}");
    assert!(matches!(program.position("b"), Err(ProgramError::Unknown { .. })));
}

#[test]
fn wrong_arrays_are_refused() {
    let built = build(SCALE);
    let program = built.load(SCALE_MANIFEST).unwrap();
    let error = |raw: RawArray<'_>| refusal(&program, &[nowhere(raw), 2.0.into()]);
    let single = error(RawArray { element: ScalarType::Float32, ..RAW });
    assert_eq!(
        single.to_string(),
        "argument a of program scale has elements of type float32, the program takes float64; convert the array"
    );
    let flat = error(RawArray { extents: &[3, 1], strides: &[8, 8], ..RAW });
    assert!(
        matches!(&flat, ProgramError::Dimensions { given: 2, expected, .. } if &**expected == "1 (I)"),
        "{flat:?}"
    );
    assert!(matches!(error(RawArray { strides: &[], ..RAW }), ProgramError::View { strides: 0, .. }));
    let gpu = error(RawArray { device: Device::Gpu(1), ..RAW });
    assert_eq!(
        gpu.to_string(),
        "argument a of program scale is in memory of GPU 1, the program takes memory of the host; copy the array \
         there"
    );
    assert!(matches!(error(RawArray { is_writable: false, ..RAW }), ProgramError::ReadOnly { .. }));
    let null = error(RawArray { address: std::ptr::null_mut(), ..RAW });
    assert!(matches!(null, ProgramError::Address { address: 0, .. }), "{null:?}");
    let odd = error(RawArray { address: std::ptr::without_provenance_mut(0x1004), ..RAW });
    assert!(
        odd.to_string().ends_with("is at address 0x1004; float64 needs a multiple of 8; copy the array"),
        "{odd}"
    );
    let between = error(RawArray { strides: &[12], ..RAW });
    assert!(matches!(between, ProgramError::StrideNotWhole { stride: 12, size: 8, .. }), "{between:?}");
    let long = error(RawArray { extents: &[1 << 31], ..RAW });
    assert!(matches!(&long, ProgramError::SymbolRange { symbol, .. } if &**symbol == "n"), "{long:?}");
}

#[test]
fn wrong_kinds_and_numbers_are_refused() {
    let built = build(SCALE);
    let manifest = SCALE_MANIFEST.replace(
        r#""factor", "type": "float64""#,
        r#""factor", "type": "float64"}, {"kind": "scalar", "name": "k", "type": "int8"},
           {"kind": "scalar", "name": "flag", "type": "bool""#,
    );
    let program = built.load(&manifest).unwrap();
    let error = |a: Given<'_>, factor: Given<'_>, k: Given<'_>, flag: Given<'_>| {
        refusal(&program, &[a, factor, k, flag])
    };
    let number = error(1.into(), 1.into(), 1.into(), true.into());
    assert!(matches!(number, ProgramError::NotAnArray { .. }), "{number:?}");
    let array = error(nowhere(RAW), nowhere(RAW), 1.into(), true.into());
    assert!(matches!(array, ProgramError::NotANumber { dimensions: 1, .. }), "{array:?}");
    let fraction = error(nowhere(RAW), 1.into(), 3.7.into(), true.into());
    assert_eq!(fraction.to_string(), "argument k of program scale is 3.7; give an integer of type int8");
    let large = error(nowhere(RAW), 1.into(), 128.into(), true.into());
    assert_eq!(
        large.to_string(),
        "argument k of program scale is 128, which int8 cannot hold; give -128 to 127"
    );
    let rounded = error(nowhere(RAW), Scalar::from(i64::MAX).into(), 1.into(), true.into());
    assert!(matches!(rounded, ProgramError::OutOfRange { .. }), "{rounded:?}");
    let both = error(nowhere(RAW), 1.into(), 1.into(), 2.into());
    assert!(matches!(both, ProgramError::NotBool { .. }), "{both:?}");
    let mut other = [1f32];
    let single = ArrayView::contiguous(&mut other, &[], &[]).unwrap();
    let single = error(nowhere(RAW), single.into(), 1.into(), true.into());
    assert!(matches!(single, ProgramError::ElementType { .. }), "{single:?}");
}

/// Two arrays of one shape, row-major, on a GPU or the host.
fn pair(device: &str) -> String {
    let array = |name: &str| {
        format!(
            r#"{{"kind": "array", "name": "{name}", "type": "float64", "device": "{device}", "dimensions": [
                {{"extent": "n", "start": 0, "stride": "m"}}, {{"name": "J", "extent": "m", "stride": 1}}]}}"#
        )
    };
    format!(
        r#"{{"format": 1, "program": "scale", "interface": "c", "arguments": [{}, {}],
            "symbols": [{{"name": "n", "type": "int32"}}, {{"name": "m", "type": "int32"}}], "parameters": ["a", "b", "n", "m"]}}"#,
        array("a"),
        array("b")
    )
}

#[test]
fn arrays_that_do_not_fit_each_other_are_refused() {
    let built = build(SCALE);
    let program = built.load(&pair("cpu")).unwrap();
    let error = |b: RawArray<'_>| {
        let a = RawArray { extents: &[4, 5], strides: &[40, 8], ..RAW };
        refusal(&program, &[nowhere(a), nowhere(b)])
    };
    let short = error(RawArray { extents: &[3, 5], strides: &[40, 8], ..RAW });
    assert_eq!(
        short.to_string(),
        "argument b of program scale has extent 3 in dimension 0, the program takes 4 (n); give such an array, or \
         build the program for this one"
    );
    let columns = error(RawArray { extents: &[4, 5], strides: &[8, 32], ..RAW });
    assert_eq!(
        columns.to_string(),
        "argument b of program scale has element stride 4 in dimension 1 (J), the program takes 1; give such an \
         array, or build the program for this one"
    );
    let padded = error(RawArray { extents: &[4, 5], strides: &[48, 8], ..RAW });
    assert!(matches!(padded, ProgramError::Quantity { given: 6, .. }), "{padded:?}");
    let a = RawArray { extents: &[4, 5], strides: &[40, 8], ..RAW };
    // SAFETY: the call is refused before the program accesses the memory.
    let moved = unsafe { ArrayView::from_raw(a) }.with_origin(&[1, 0]);
    assert!(matches!(
        refusal(&program, &[nowhere(a), moved.into()]),
        ProgramError::Quantity { given: 1, .. }
    ));
    let moved = moved.with_origin(&[1]);
    assert!(matches!(refusal(&program, &[moved.into(), nowhere(a)]), ProgramError::View { origin: 1, .. }));
}

#[test]
fn all_arrays_of_a_call_are_of_one_gpu() {
    let built = build("void scale(double *a, double *b, int n, int m) {}");
    let program = built.load(&pair("gpu")).unwrap();
    let on = |gpu| nowhere(RawArray { device: Device::Gpu(gpu), extents: &[4, 5], strides: &[40, 8], ..RAW });
    program.call(&[on(1), on(1)]).unwrap();
    let error = refusal(&program, &[on(1), on(2)]);
    assert!(
        error
            .to_string()
            .ends_with("memory of GPU 1, as the arguments before it or the stream; copy the array there"),
        "{error}"
    );
    let host = RawArray { extents: &[4, 5], strides: &[40, 8], ..RAW };
    assert!(matches!(refusal(&program, &[nowhere(host), on(0)]), ProgramError::WrongDevice { .. }));
}

#[test]
fn strides_of_dimensions_with_one_index_do_not_matter() {
    let built = build("void scale(double *a, double *b, int n, int m) {}");
    let program = built.load(&pair("cpu")).unwrap();
    let one = |strides| nowhere(RawArray { extents: &[1, 5], strides, ..RAW });
    program.call(&[one(&[40, 8]), one(&[13, 8])]).unwrap();
    let empty = RawArray { extents: &[0, 5], strides: &[40, 8], address: std::ptr::null_mut(), ..RAW };
    program.call(&[nowhere(empty), nowhere(empty)]).unwrap();
}

/// Bounds are computed with 63 bits and a sign.
#[test]
fn unsigned_numbers_beyond_63_bits_bound_no_array() {
    let built = build("void take(double *a, unsigned long n) {}");
    let program = built
        .load(
            r#"{"format": 1, "program": "take", "interface": "c", "arguments": [
            {"kind": "array", "name": "a", "type": "float64", "dimensions": [{"stride": 1, "covers": [0, "n"]}]},
            {"kind": "scalar", "name": "n", "type": "uint64"}], "parameters": ["a", "n"]}"#,
        )
        .unwrap();
    let mut memory = [0.0f64; 10];
    let given = ArrayView::contiguous(&mut memory, &[10], &[8]).unwrap();
    program.call(&[given.into(), 10u64.into()]).unwrap();
    assert!(matches!(program.call(&[given.into(), 11u64.into()]), Err(ProgramError::Bounds { .. })));
    let beyond = (1u64 << 63) + 5;
    assert!(matches!(program.call(&[given.into(), beyond.into()]), Err(ProgramError::OutOfRange { .. })));
    let mut prepared = program.prepare(&[given.into(), 10u64.into()]).unwrap();
    assert!(matches!(prepared.set(1, beyond), Err(ProgramError::OutOfRange { .. })));
}

/// The stride of the only row says nothing about the number of columns.
#[test]
fn extents_give_symbols_their_values_before_strides() {
    let built = build("void take(double *a, int m) { a[0] = m; }");
    let program = built
        .load(
            r#"{"format": 1, "program": "take", "interface": "c", "arguments": [
            {"kind": "array", "name": "a", "type": "float64", "dimensions": [{"stride": "m"}, {"extent": "m", "stride": 1}]}],
            "symbols": [{"name": "m", "type": "int32"}], "parameters": ["a", "m"]}"#,
        )
        .unwrap();
    let mut memory = [0.0f64; 5];
    let address = memory.as_mut_ptr().cast();
    let raw = RawArray { address, extents: &[1, 5], strides: &[0, 8], ..RAW };
    // SAFETY: all five elements of the memory, which outlives the call.
    program.call(&[unsafe { ArrayView::from_raw(raw) }.into()]).unwrap();
    assert_eq!(memory[0], 5.0);
}

#[test]
fn integers_that_a_shorter_float_has_not_are_refused() {
    let built = build("void take(double *a, float f) { a[0] = f; }");
    for (value, is_taken) in [(1i64 << 24, true), ((1 << 24) + 1, false)] {
        let program = built
            .load(
                r#"{"format": 1, "program": "take", "interface": "c", "arguments": [
                {"kind": "array", "name": "a", "type": "float64", "dimensions": []}, {"kind": "scalar", "name": "f", "type": "float32"}],
                "parameters": ["a", "f"]}"#,
            )
            .unwrap();
        let mut one = [0.0f64];
        let given = ArrayView::contiguous(&mut one, &[], &[]).unwrap();
        let called = program.call(&[given.into(), value.into()]);
        assert_eq!(called.is_ok(), is_taken, "{called:?}");
    }
}
