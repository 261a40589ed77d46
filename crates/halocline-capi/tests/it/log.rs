//! What programs of C log: `HALOCLINE_LOG`.

use crate::toolchain::C;
use std::path::Path;
use std::process::{Command, Output};

fn run(program: &Path, level: Option<&str>) -> (bool, String) {
    let mut command = Command::new(program);
    command.arg("2").env_remove("HALOCLINE_LOG").envs(level.map(|level| ("HALOCLINE_LOG", level)));
    let Output { status, stderr, .. } = command.output().unwrap();
    (status.success(), String::from_utf8_lossy(&stderr).into_owned())
}

#[test]
fn c_logs_what_the_variable_selects() {
    let program = C.program("exchange");
    assert_eq!(run(&program, None), (true, String::new()));
    assert_eq!(run(&program, Some("off")), (true, String::new()));
    let (succeeds, logged) = run(&program, Some("halocline=trace"));
    assert!(succeeds && logged.contains("TRACE") && logged.contains("epoch=1"), "{logged}");
    let (succeeds, message) = run(&program, Some("loud and=clear"));
    assert!(!succeeds && message.contains("HALOCLINE_ERROR_ARGUMENT: HALOCLINE_LOG is"), "{message}");
}
