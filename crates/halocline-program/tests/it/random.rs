//! Random signatures: a C function writes down what it gets.

use crate::source::{Built, build};
use halocline_program::{ArrayView, Device, Given, Program, RawArray, Scalar, ScalarType};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use std::fmt::Write as _;

/// Names of types in C, with what a parameter is declared as.
const TYPES: [(ScalarType, &str); 12] = [
    (ScalarType::Bool, "_Bool"),
    (ScalarType::Int8, "int8_t"),
    (ScalarType::Int16, "int16_t"),
    (ScalarType::Int32, "int32_t"),
    (ScalarType::Int64, "int64_t"),
    (ScalarType::UInt8, "uint8_t"),
    (ScalarType::UInt16, "uint16_t"),
    (ScalarType::UInt32, "uint32_t"),
    (ScalarType::UInt64, "uint64_t"),
    (ScalarType::Float16, "uint16_t"),
    (ScalarType::Float32, "float"),
    (ScalarType::Float64, "double"),
];

#[derive(Debug, Clone)]
struct Shape {
    extent: isize,
    stride: isize,
    origin: isize,
}

/// An argument with the value that is given.
#[derive(Debug, Clone)]
enum Case {
    /// The type's index, and its value.
    Scalar(usize, Scalar),
    Array(ScalarType, Vec<Shape>),
}

fn scalar() -> impl Strategy<Value = Case> {
    let value = |at: usize| match TYPES[at].0 {
        ScalarType::Bool => any::<bool>().prop_map(Scalar::from).boxed(),
        ScalarType::Int8 => any::<i8>().prop_map(Scalar::from).boxed(),
        ScalarType::Int16 => any::<i16>().prop_map(Scalar::from).boxed(),
        ScalarType::Int32 => any::<i32>().prop_map(Scalar::from).boxed(),
        ScalarType::Int64 => any::<i64>().prop_map(Scalar::from).boxed(),
        ScalarType::UInt8 => any::<u8>().prop_map(Scalar::from).boxed(),
        ScalarType::UInt16 => any::<u16>().prop_map(Scalar::from).boxed(),
        ScalarType::UInt32 => any::<u32>().prop_map(Scalar::from).boxed(),
        ScalarType::UInt64 => any::<u64>().prop_map(Scalar::from).boxed(),
        ScalarType::Float16 => any::<u16>().prop_map(Scalar::Half).boxed(),
        ScalarType::Float32 => any::<f32>().prop_map(Scalar::from).boxed(),
        _ => any::<f64>().prop_map(Scalar::from).boxed(),
    };
    (0..TYPES.len()).prop_flat_map(move |at| value(at).prop_map(move |value| Case::Scalar(at, value)))
}

fn array() -> impl Strategy<Value = Case> {
    let shape = (0..1000isize, -2000..2000isize, -9..9isize).prop_map(|(extent, stride, origin)| Shape {
        extent,
        stride,
        origin,
    });
    let of_arrays = [ScalarType::Complex64, ScalarType::Complex128];
    let types: Vec<_> = TYPES.iter().map(|(scalar, _)| *scalar).chain(of_arrays).collect();
    let types = prop::sample::select(types);
    (types, prop::collection::vec(shape, 0..4)).prop_map(|(element, shapes)| Case::Array(element, shapes))
}

/// A parameter: its name, its type in C and the bytes that it has to get.
struct Parameter {
    name: String,
    c: String,
    expected: Vec<u8>,
}

/// Everything that a case needs.
struct Generated {
    code: String,
    manifest: String,
    parameters: Vec<Parameter>,
}

const PROLOGUE: &str = "#include <stdint.h>\n#include <string.h>\nunsigned char seen[65536];\nint state;\n";

/// What `cases` pass, shuffled by `order`, and the program that writes it down.
fn generate(cases: &[Case], order: &[usize], has_state: bool) -> Generated {
    let (mut arguments, mut symbols, mut parameters) = (Vec::new(), Vec::new(), Vec::new());
    for (at, case) in cases.iter().enumerate() {
        // Flattened tuples have such names.
        let name = format!("t_{}_{at}", at % 3);
        match case {
            Case::Scalar(of, value) => {
                let (scalar, c) = TYPES[*of];
                arguments.push(format!(r#"{{"kind": "scalar", "name": "{name}", "type": "{scalar}"}}"#));
                parameters.push(Parameter { name, c: c.to_owned(), expected: bytes(scalar, *value) });
            }
            Case::Array(element, shapes) => {
                let mut dimensions = Vec::new();
                for (d, shape) in shapes.iter().enumerate() {
                    let parts = [
                        ("extent", shape.extent),
                        ("start", shape.origin),
                        ("stop", shape.origin + shape.extent),
                        ("stride", shape.stride),
                    ];
                    let named = parts.map(|(part, _)| format!(r#""{part}": "__{name}_{d}_{part}""#));
                    dimensions.push(format!("{{{}}}", named.join(", ")));
                    for (part, value) in parts {
                        let symbol = format!("__{name}_{d}_{part}");
                        symbols.push(format!(r#"{{"name": "{symbol}", "type": "int32"}}"#));
                        let expected = (value as i32).to_le_bytes().to_vec();
                        parameters.push(Parameter { name: symbol, c: "int32_t".to_owned(), expected });
                    }
                }
                arguments.push(format!(
                    r#"{{"kind": "array", "name": "{name}", "type": "{element}", "dimensions": [{}]}}"#,
                    dimensions.join(", ")
                ));
                let expected = address(at).to_le_bytes().to_vec();
                parameters.push(Parameter { name, c: "void *".to_owned(), expected });
            }
        }
    }
    for (at, &other) in order.iter().enumerate().take(parameters.len()) {
        let other = other % parameters.len();
        parameters.swap(at, other);
    }
    let names: Vec<String> = parameters.iter().map(|parameter| format!("{:?}", parameter.name)).collect();
    let manifest = format!(
        r#"{{"format": 1, "program": "seen_by", "interface": "{}", "arguments": [{}], "symbols": [{}], "parameters": [{}]}}"#,
        if has_state { "dace" } else { "c" },
        arguments.join(", "),
        symbols.join(", "),
        names.join(", ")
    );
    Generated { code: code(&parameters, has_state), manifest, parameters }
}

fn code(parameters: &[Parameter], has_state: bool) -> String {
    let mut declared: Vec<String> =
        parameters.iter().enumerate().map(|(at, parameter)| format!("{} p{at}", parameter.c)).collect();
    let mut code = PROLOGUE.to_owned();
    let mut name = "seen_by";
    if has_state {
        declared.insert(0, "int *given".to_owned());
        name = "__program_seen_by";
        code += "int *__dace_init_seen_by(void) { return &state; }\nint __dace_exit_seen_by(int *s) { return s != &state; }\n";
    }
    writeln!(code, "void {name}({}) {{", declared.join(", ")).unwrap();
    for at in 0..parameters.len() {
        writeln!(code, "  memcpy(seen + {at} * 8, &p{at}, sizeof p{at});").unwrap();
    }
    code += if has_state { "  if (given != &state) memset(seen, 255, sizeof seen);\n}\n" } else { "}\n" };
    code
}

/// No memory is there: the function only writes down the address.
fn address(at: usize) -> usize {
    0x10_0000 + at * 64
}

fn bytes(scalar: ScalarType, value: Scalar) -> Vec<u8> {
    let size = scalar.size();
    let mut bytes = match (scalar, value) {
        (_, Scalar::Bool(value)) => vec![u8::from(value)],
        (_, Scalar::Half(bits)) => bits.to_le_bytes().to_vec(),
        (ScalarType::Float32, Scalar::Float(value)) => (value as f32).to_le_bytes().to_vec(),
        (_, Scalar::Float(value)) => value.to_le_bytes().to_vec(),
        (_, Scalar::Int(value)) => value.to_le_bytes().to_vec(),
        (_, Scalar::UInt(value)) => value.to_le_bytes().to_vec(),
    };
    bytes.truncate(size);
    bytes
}

/// Extents, byte strides and origins of all arrays.
struct Parts {
    extents: Vec<isize>,
    strides: Vec<isize>,
    origin: Vec<isize>,
}

fn call(program: &Program, cases: &[Case], is_prepared: bool) {
    let parts = |case: &Case| match case {
        Case::Scalar(..) => Parts { extents: Vec::new(), strides: Vec::new(), origin: Vec::new() },
        Case::Array(element, shapes) => Parts {
            extents: shapes.iter().map(|shape| shape.extent).collect(),
            strides: shapes.iter().map(|shape| shape.stride * element.size() as isize).collect(),
            origin: shapes.iter().map(|shape| shape.origin).collect(),
        },
    };
    let parts: Vec<Parts> = cases.iter().map(parts).collect();
    let given = |(at, case): (usize, &Case)| match case {
        Case::Scalar(_, value) => Given::Scalar(*value),
        Case::Array(element, _) => {
            let raw = RawArray {
                address: std::ptr::without_provenance_mut(address(at)),
                element: *element,
                extents: &parts[at].extents,
                strides: &parts[at].strides,
                device: Device::Host,
                is_writable: true,
            };
            // SAFETY: the function accesses no array.
            Given::Array(unsafe { ArrayView::from_raw(raw) }.with_origin(&parts[at].origin))
        }
    };
    let given: Vec<Given<'_>> = cases.iter().enumerate().map(given).collect();
    match is_prepared {
        true => program.prepare(&given).unwrap().call().unwrap(),
        false => program.call(&given).unwrap(),
    }
}

fn compare(built: &Built, generated: &Generated) {
    let seen = built.global("seen", 65536);
    for (at, parameter) in generated.parameters.iter().enumerate() {
        let got = &seen[at * 8..][..parameter.expected.len()];
        let is_nan = match parameter.c.as_str() {
            "float" => f32::from_le_bytes(parameter.expected[..].try_into().unwrap()).is_nan(),
            "double" => f64::from_le_bytes(parameter.expected[..].try_into().unwrap()).is_nan(),
            _ => false,
        };
        // The bits of a NaN change in conversions.
        assert!(
            got == parameter.expected || is_nan,
            "{}: {got:?}, not {:?}",
            parameter.name,
            parameter.expected
        );
    }
}

fn check(cases: &[Case], order: &[usize], has_state: bool, is_prepared: bool) {
    let generated = generate(cases, order, has_state);
    let built = build(&generated.code);
    let program = built.load(&generated.manifest).unwrap();
    call(&program, cases, is_prepared);
    compare(&built, &generated);
    assert_eq!(program.states(), usize::from(has_state));
}

proptest! {
    // Each case takes a run of the C compiler.
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        cases: ProptestConfig::default().cases / 4,
        ..ProptestConfig::default()
    })]
    #[test]
    fn a_c_function_gets_what_the_signature_says(
        cases in prop::collection::vec(prop_oneof![scalar(), array()], 0..=200),
        order in prop::collection::vec(any::<usize>(), 0..800),
        has_state in any::<bool>(),
        is_prepared in any::<bool>(),
    ) {
        check(&cases, &order, has_state, is_prepared);
    }
}

#[test]
fn two_hundred_arguments_of_all_kinds_arrive() {
    let mut runner = TestRunner::deterministic();
    let arguments = prop::collection::vec(prop_oneof![scalar(), array()], 200);
    let orders = prop::collection::vec(any::<usize>(), 400);
    for has_state in [false, true] {
        let cases = arguments.new_tree(&mut runner).unwrap().current();
        let order = orders.new_tree(&mut runner).unwrap().current();
        check(&cases, &order, has_state, false);
    }
}
