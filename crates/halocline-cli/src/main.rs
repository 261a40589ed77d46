//! The program `halocline`.

use std::process::ExitCode;

fn main() -> ExitCode {
    halocline_cli::run(std::env::args_os(), None).into()
}
