//! States, threads and errors that a program reports.

use crate::source::{SCALE, SCALE_MANIFEST, build};
use halocline_program::{ArrayView, Program, ProgramError};
use std::sync::Barrier;

/// A program whose state has scratch memory of `n` words and counts its calls: `out[0]` the state's `n`, `out[1]` its calls, `out[2]`
/// how many calls were in it at once at most.
const COUNTER: &str = "
    #include <stdlib.h>
    typedef struct { int n, calls, inside, most; int scratch[64]; } State;
    int inits, exits;
    State *__dace_init_counter(int n) {
        __atomic_fetch_add(&inits, 1, __ATOMIC_SEQ_CST);
        if (n < 0) return 0;
        State *s = calloc(1, sizeof(State));
        s->n = n;
        return s;
    }
    void __program_counter(State *s, int *out, int n) {
        int inside = __atomic_add_fetch(&s->inside, 1, __ATOMIC_SEQ_CST);
        if (inside > s->most) s->most = inside;
        for (int round = 0; round < 50; round++) {
            for (int i = 0; i < 64; i++) s->scratch[i] = out[i + 3] + n;
            for (int i = 0; i < 64; i++) out[i + 3] = s->scratch[i];
        }
        out[0] = s->n; out[1] = ++s->calls; out[2] = s->most;
        __atomic_sub_fetch(&s->inside, 1, __ATOMIC_SEQ_CST);
    }
    int __dace_exit_counter(State *s) { __atomic_fetch_add(&exits, 1, __ATOMIC_SEQ_CST); free(s); return 0; }";
const COUNTER_MANIFEST: &str = r#"{
    "format": 1, "program": "counter",
    "arguments": [
        {"kind": "array", "name": "out", "type": "int32", "dimensions": [{"extent": 67, "stride": 1}]},
        {"kind": "scalar", "name": "n", "type": "int32"}],
    "parameters": ["out", "n"], "init": ["n"]}"#;

fn run(program: &Program, n: i32) -> Result<[i32; 67], ProgramError> {
    let mut out = [0; 67];
    let view = ArrayView::contiguous(&mut out, &[67], &[]).unwrap();
    program.call(&[view.into(), n.into()])?;
    Ok(out)
}

fn number(built: &crate::source::Built, name: &str) -> i32 {
    i32::from_le_bytes(built.global(name, 4).try_into().unwrap())
}

#[test]
fn each_value_of_a_symbol_of_init_has_its_state() {
    let built = build(COUNTER);
    let program = built.load(COUNTER_MANIFEST).unwrap();
    assert_eq!(program.states(), 0);
    assert_eq!(run(&program, 3).unwrap()[..3], [3, 1, 1]);
    assert_eq!(run(&program, 4).unwrap()[..3], [4, 1, 1]);
    assert_eq!(run(&program, 3).unwrap()[..3], [3, 2, 1]);
    assert_eq!(program.states(), 2);
    drop(program);
    assert_eq!((number(&built, "inits"), number(&built, "exits")), (2, 2));
}

#[test]
fn a_prepared_call_changes_its_state_with_the_symbol() {
    let built = build(COUNTER);
    let program = built.load(COUNTER_MANIFEST).unwrap();
    let mut out = [0; 67];
    let view = ArrayView::contiguous(&mut out, &[67], &[]).unwrap();
    let mut call = program.prepare(&[view.into(), 3.into()]).unwrap();
    call.call().unwrap();
    call.set(1, 8).unwrap();
    call.call().unwrap();
    drop(call);
    assert_eq!((out[0], out[1], program.states()), (8, 1, 2));
}

#[test]
fn two_programs_of_one_library_share_no_state() {
    let built = build(COUNTER);
    let programs = [built.load(COUNTER_MANIFEST).unwrap(), built.load(COUNTER_MANIFEST).unwrap()];
    for program in &programs {
        assert_eq!(run(program, 3).unwrap()[1], 1);
    }
    assert_eq!(number(&built, "inits"), 2);
}

#[test]
fn eight_threads_call_at_once_each_with_its_own_frame_and_state() {
    let built = build(COUNTER);
    let program = built.load(COUNTER_MANIFEST).unwrap();
    let start = Barrier::new(8);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (program, start) = (&program, &start);
            scope.spawn(move || {
                start.wait();
                for call in 0..500 {
                    // Two threads have the same symbol.
                    let n = thread / 2 + call % 2;
                    let out = run(program, n).unwrap();
                    assert_eq!((out[0], out[2]), (n, 1), "another state, or one of two calls at once");
                    assert!(out[3..].iter().all(|value| *value == 50 * n), "another frame: {out:?}");
                }
            });
        }
    });
    let states = program.states();
    assert!((5..=40).contains(&states), "{states}");
    drop(program);
    assert_eq!(number(&built, "exits") as usize, states);
}

#[test]
fn an_init_that_returns_null_is_an_error_each_time() {
    let built = build(COUNTER);
    let program = built.load(COUNTER_MANIFEST).unwrap();
    for _ in 0..2 {
        let text = run(&program, -7).unwrap_err().to_string();
        let expected =
            "program counter cannot be initialised: __dace_init_counter(n=-7) returned NULL; check these";
        assert!(text.starts_with(expected), "{text}");
    }
    assert_eq!(run(&program, 1).unwrap()[0], 1);
    drop(program);
    assert_eq!((number(&built, "inits"), number(&built, "exits")), (3, 1));
}

#[test]
fn a_state_without_symbols_is_made_at_load() {
    let code = "int state; int *__dace_init_p(void) { return 0; } void __program_p(int *s) {} int __dace_exit_p(int *s) { return 0; }";
    let manifest = r#"{"format": 1, "program": "p", "arguments": [], "parameters": []}"#;
    let refused = build(code).load(manifest);
    assert!(matches!(refused, Err(ProgramError::Init { .. })), "{refused:?}");
    let built = build(&code.replace("return 0; } void", "return &state; } void"));
    assert_eq!(built.load(manifest).unwrap().states(), 1);
}

#[test]
fn a_program_reports_its_last_error_and_its_status() {
    let code = "int state; int *__dace_init_p(void) { return &state; } void __program_p(int *s, int code) { *s = code; }
        int __dace_exit_p(int *s) { return 0; } int __dace_gpu_last_error(int *s) { return *s; } int status(int code) { return code; }";
    let built = build(code);
    let manifest = r#"{"format": 1, "program": "p", "parameters": ["code"],
        "arguments": [{"kind": "scalar", "name": "code", "type": "int32"}]}"#;
    let program = built.load(manifest).unwrap();
    program.call(&[0.into()]).unwrap();
    let failed = program.call(&[700.into()]);
    assert_eq!(failed, Err(ProgramError::LastError { program: "p".into(), code: 700 }));
    program.call(&[0.into()]).unwrap();
    let manifest = manifest
        .replace(r#""program": "p""#, r#""program": "status", "interface": "c", "returns": "status""#);
    let program = built.load(&manifest).unwrap();
    program.call(&[0.into()]).unwrap();
    let failed = program.call(&[(-3).into()]);
    assert_eq!(failed, Err(ProgramError::Status { program: "status".into(), status: -3 }));
}

#[test]
fn one_library_of_two_names_is_open_once() {
    let built = build(SCALE);
    let first = built.load(SCALE_MANIFEST).unwrap();
    let link = built.folder.path().join("link.so");
    std::fs::hard_link(&built.library, &link).unwrap();
    // SAFETY: the manifest is the library's.
    let second = unsafe { Program::with_signature(&link, first.signature().clone()) }.unwrap();
    assert_eq!(first.library(), second.library());
}
