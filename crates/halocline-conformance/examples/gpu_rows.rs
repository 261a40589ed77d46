//! Exchanges between GPUs, a process each, beside NCCL written by hand and beside plain stores to the peer's memory, in one run: a
//! table, and as JSON what `halocline plot sizes` draws. `gpu/two` carries it to a machine with GPUs.
//!
//! ```sh
//! halocline launch -n 2 -- gpu_rows
//! mpirun -n 2 gpu_rows
//! ```
//!
//! Options: `--json FILE`; `--only TEXT`, for the rows whose names contain it, without sizes; `--no-nccl`; `--link-nccl`, for our
//! exchanges by NCCL, too; `--objects`, for several objects in turn and nothing else; `--graphs`, for exchanges in CUDA graphs and
//! nothing else (`--only` applies); `--reduces`, for reduces beside exchanges and nothing else (`--only` applies).

use halocline::Communicator;
use halocline::device::cuda;
use halocline_conformance::gpus::rows::{self, Options};
use halocline_conformance::gpus::skipped;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut options = Options::default();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let understood = match argument.as_str() {
            "--no-nccl" => {
                options.without_nccl = true;
                true
            }
            "--link-nccl" => {
                options.link_nccl = true;
                true
            }
            "--objects" => {
                options.objects = true;
                true
            }
            "--reduces" => {
                options.reduces = true;
                true
            }
            "--graphs" => {
                options.graphs = true;
                true
            }
            "--json" => {
                options.json = arguments.next().map(Into::into);
                options.json.is_some()
            }
            "--only" => {
                options.only = arguments.next();
                options.only.is_some()
            }
            _ => false,
        };
        if !understood {
            eprintln!(
                "{argument:?} is not understood; there are --json FILE, --only TEXT, --no-nccl, --link-nccl, --objects, \
                 --graphs, --reduces"
            );
            return ExitCode::from(2);
        }
    }
    // Multicast over NVLink is left alone, unless it is asked for.
    if std::env::var_os("NCCL_NVLS_ENABLE").is_none() {
        // SAFETY: no other thread of this program runs yet.
        unsafe { std::env::set_var("NCCL_NVLS_ENABLE", "0") };
    }
    if let Err(why) = cuda::device(0) {
        return skipped("exchanges between GPUs", &why);
    }
    let ran = Communicator::init().map_err(Into::into).and_then(|comm| rows::run(&comm, &options));
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            eprintln!("FAILED: {trouble}");
            ExitCode::FAILURE
        }
    }
}
