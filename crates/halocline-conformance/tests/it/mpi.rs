//! Jobs over MPI that are not cases of the suite, for every launcher of this machine and every library that works with it:
//! `mpi::openmpi::NAME` and so on. [`halocline_conformance::launchers`] lists the launchers. Without one the tests say so and pass.

use halocline_conformance::host::FINALIZED;
use halocline_conformance::launchers::{Mpi, said};
use halocline_conformance::watchdog::{LIMIT, Watchdog};
use std::path::Path;
use std::process::{Command, Stdio};

const RANK: &str = env!("CARGO_BIN_EXE_halocline-conformance");

/// Runs ranks of this crate's program that must succeed.
fn must(mpi: &Mpi, ranks: usize, environment: &[(&str, &str)], arguments: &[&str]) -> String {
    let output = mpi.run(ranks, environment, Path::new(RANK), arguments);
    let said = said(&output);
    assert!(output.status.success(), "{mpi:?}, {ranks} ranks, {environment:?}, {arguments:?}:\n{said}");
    said
}

/// Runs a test with the library of that name.
fn with(library: &str, test: fn(&Mpi)) {
    match Mpi::all().iter().find(|mpi| mpi.short_name().replace('-', "_") == library) {
        Some(mpi) => test(mpi),
        None => println!("SKIPPED: {library} is not here"),
    }
}

/// Makes a test of each function for each library.
macro_rules! for_each_library {
    ([$($library:ident)*] $tests:tt) => { $(for_each_library! { mod $library $tests })* };
    (mod $library:ident [$($test:ident)*]) => {
        mod $library {
            $(#[test] fn $test() { super::with(stringify!($library), super::$test) })*
        }
    };
}

for_each_library! {
    [openmpi mpich mpich_abi]
    [
        mpi_gets_no_device_memory_unless_enabled
        a_program_gives_its_own_communicator
        one_thread_calls_mpi_under_thread_funneled
        threads_take_turns_where_mpi_takes_one_call_at_a_time
        a_rank_that_aborts_mpi_ends_the_job
        a_rank_that_ends_without_dropping_anything_has_left
        ranks_that_share_memory_run_out_of_descriptors
        mpi_is_not_called_after_finalize_while_a_thread_joins
        a_program_that_finalizes_mpi_first_gets_an_error
    ]
}

fn mpi_gets_no_device_memory_unless_enabled(mpi: &Mpi) {
    for choice in ["auto", "off"] {
        let environment = [("HALOCLINE_NODE_AWARE", "off"), ("HALOCLINE_MPI_DEVICE", choice)];
        must(mpi, 2, &environment, &["suite", "explain_names_the_memory_of_messages"]);
    }
    // A launcher that ends a job loses what its ranks have printed, now and then.
    let wrong = [("HALOCLINE_MPI_DEVICE", "perhaps")];
    let mut runs = (0..5).map(|_| mpi.run(2, &wrong, Path::new(RANK), &["suite", "collectives"]));
    let output = runs.find(|output| !said(output).trim().is_empty()).expect("five runs print nothing");
    let text = said(&output);
    let expected = "HALOCLINE_MPI_DEVICE is \"perhaps\", it should be auto, on or off";
    assert!(!output.status.success() && text.contains(expected), "{text}");
}

fn a_program_gives_its_own_communicator(mpi: &Mpi) {
    for node_aware in ["on", "off"] {
        must(mpi, 2, &[("HALOCLINE_NODE_AWARE", node_aware)], &["host", "given", &mpi.library()]);
    }
}

fn one_thread_calls_mpi_under_thread_funneled(mpi: &Mpi) {
    must(mpi, 3, &[("HALOCLINE_NODE_AWARE", "off")], &["host", "funneled", &mpi.library()]);
}

fn threads_take_turns_where_mpi_takes_one_call_at_a_time(mpi: &Mpi) {
    must(mpi, 3, &[("HALOCLINE_NODE_RANKS", "2")], &["host", "serialized", &mpi.library()]);
}

fn a_rank_that_aborts_mpi_ends_the_job(mpi: &Mpi) {
    let watchdog = Watchdog::new(LIMIT);
    for node_aware in ["on", "off"] {
        watchdog.begin(format!("{mpi:?}, node-aware {node_aware}"));
        let environment = [("HALOCLINE_NODE_AWARE", node_aware)];
        let output = mpi.run(3, &environment, Path::new(RANK), &["host", "aborts", &mpi.library()]);
        assert!(!output.status.success(), "{}", said(&output));
    }
}

fn a_rank_that_ends_without_dropping_anything_has_left(mpi: &Mpi) {
    let watchdog = Watchdog::new(LIMIT);
    for node_aware in ["on", "off"] {
        watchdog.begin(format!("{mpi:?}, node-aware {node_aware}"));
        for scenario in ["exits", "exits-in-exchange"] {
            must(mpi, 2, &[("HALOCLINE_NODE_AWARE", node_aware)], &["host", scenario, &mpi.library()]);
        }
    }
}

/// As over shm, where the launcher lets them say so.
fn ranks_that_share_memory_run_out_of_descriptors(mpi: &Mpi) {
    const RANKS: usize = 3;
    let watchdog = Watchdog::new(LIMIT);
    for seed in ["3", "10"] {
        watchdog.begin(format!("{mpi:?}, seed {seed}"));
        let mpi = Mpi { lets_live: true, ..mpi.clone() };
        let output = mpi.run(RANKS, &[], Path::new(RANK), &["victim", "starved", seed]);
        let said = said(&output);
        assert_eq!(said.matches(" starved at ").count(), RANKS, "{mpi:?}, seed {seed}\n{said}");
        // All do, or where one is lost to others, none.
        assert!([0, RANKS].contains(&said.matches(FINALIZED).count()), "{mpi:?}, seed {seed}\n{said}");
    }
}

fn mpi_is_not_called_after_finalize_while_a_thread_joins(mpi: &Mpi) {
    let watchdog = Watchdog::new(LIMIT);
    watchdog.begin(format!("{mpi:?}"));
    must(mpi, 2, &[], &["host", "joining", &mpi.library()]);
}

fn a_program_that_finalizes_mpi_first_gets_an_error(mpi: &Mpi) {
    for node_aware in ["on", "off"] {
        must(mpi, 2, &[("HALOCLINE_NODE_AWARE", node_aware)], &["host", "dropped", &mpi.library()]);
        must(mpi, 2, &[("HALOCLINE_NODE_AWARE", node_aware)], &["host", "finalized", &mpi.library()]);
    }
    must(mpi, 1, &[], &["host", "uninitialized", &mpi.library()]);
}

#[test]
fn errors_name_a_wrong_library_and_two_libraries() {
    let all = Mpi::all();
    let open = all.iter().find(|mpi| mpi.is_open_mpi);
    let Some((open, mpich)) = open.zip(all.iter().find(|mpi| !mpi.is_open_mpi)) else {
        return println!("SKIPPED: this needs Open MPI and MPICH");
    };
    let both = format!("{}:{}", open.library(), mpich.library());
    let output = Command::new(RANK).args(["host", "two", &both]).stdin(Stdio::null()).output();
    let output = output.expect("the program starts");
    assert!(output.status.success(), "{}", said(&output));

    let library = open.library();
    let output = mpich.run(2, &[("HALOCLINE_MPI", &library)], Path::new(RANK), &["suite", "none"]);
    let text = said(&output);
    assert!(!output.status.success() && text.contains("2 ranks were started, but libmpi.so.40"), "{text}");

    // The other way round, the library would end the process.
    for mpich in all.iter().filter(|mpi| !mpi.is_open_mpi) {
        let library = mpich.library();
        let output = open.run(2, &[("HALOCLINE_MPI", &library)], Path::new(RANK), &["suite", "none"]);
        let text = said(&output);
        let expected = format!("2 ranks were started, but {library}");
        assert!(!output.status.success() && text.contains(&expected) && text.contains("PMIx"), "{text}");
    }
}

#[test]
fn a_library_that_the_program_loaded_is_found_under_any_name() {
    let Some(mpi) = Mpi::all().into_iter().find(|mpi| mpi.is_open_mpi) else {
        return println!("SKIPPED: this needs Open MPI");
    };
    // SAFETY: an MPI library, of which nothing is called.
    let library = unsafe { libloading::Library::new(mpi.library()) }.expect("the library can be loaded");
    let maps = std::fs::read_to_string("/proc/self/maps").expect("what this process has mapped");
    let mut paths = maps.lines().filter_map(|line| Some(&line[line.find('/')?..]));
    let path = paths.find(|path| path.contains("/libmpi.so.40")).expect("where it was found");
    // MPI libraries cannot be unloaded.
    std::mem::forget(library);
    let renamed = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libmpi_gnu_91.so.12");
    std::fs::copy(path, &renamed).expect("the library can be copied");
    let preload = renamed.display().to_string();
    must(&mpi, 2, &[("LD_PRELOAD", &preload)], &["suite", "collectives"]);
    // It is this one: another one is refused.
    let environment = [("LD_PRELOAD", preload.as_str()), ("HALOCLINE_MPI", "libmpi.so.40")];
    let text = said(&mpi.run(2, &environment, Path::new(RANK), &["suite", "collectives"]));
    assert!(text.contains(&format!("two MPI libraries: {preload} and libmpi.so.40")), "{text}");
}

/// As where srun says nothing to the library.
#[test]
fn an_srun_task_without_pmi_gets_advice() {
    let all = Mpi::all();
    let Some(mpi) = all.first() else { return };
    let mut task = Command::new(RANK);
    task.args(["suite", "none"]).env("HALOCLINE_MPI", mpi.library()).stdin(Stdio::null());
    // Else Open MPI looks for Slurm's own directories.
    task.env("OMPI_MCA_ess", "singleton").env("SLURM_STEP_ID", "0").env("SLURM_PROCID", "1");
    let output = task.env("SLURM_STEP_NUM_TASKS", "3").output().expect("the program starts");
    let text = said(&output);
    let named = text.contains("3 ranks were started, but") && text.contains("srun --mpi=");
    assert!(!output.status.success() && named, "{text}");
}
