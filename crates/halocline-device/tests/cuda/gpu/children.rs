//! Tests that need a process of their own: one that is killed, one that loses its GPU, one that requests a
//! number of queues.

use super::alone::{full, no_memory, table};
use super::mappings;
use super::{Gpu, Rig};
use crate::suite::Outcome;
use halocline_device::cuda::CudaDriver;
use halocline_device::{DeviceError, Priority, Signal, TablePart, ValueOp};
use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

const WAITING: &str = "child-waiting";

/// Kills a process while a stream, a launch and an event of it wait for a flag that is never raised.
pub fn killed(rig: &Rig) -> Outcome {
    let program = std::env::current_exe().expect("this test");
    let mut child = Command::new(program).arg(WAITING).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut said = String::new();
    let output = child.stdout.take().expect("it is piped");
    BufReader::new(output).read_line(&mut said).expect("it says something");
    assert_eq!(said, "waiting\n");
    child.kill().expect("it lives");
    child.wait().expect("it ends");
    no_memory(rig)?;
    full(rig)
}

/// Reports that it waits, then waits forever.
fn waiting() -> Outcome {
    let gpu = Gpu::new(0)?;
    let device = halocline_device::Device::new(gpu.driver.clone());
    let (one, two) = (device.stream(Priority::Normal)?, device.stream(Priority::Highest)?);
    let word = device.allocate_pinned(8)?;
    let waits = [Signal { address: word.at(0), lag: 0 }];
    let parts = [TablePart { waits: &waits, ops: &[], raises: &[], ..TablePart::default() }];
    let table = device.upload(&table(&parts, &([0], [0])))?;
    let event = device.events().take()?;
    // SAFETY: the process is killed before the memory and the table go.
    unsafe {
        one.launch(&table, 1)?;
        one.record(&event)?;
        two.wait(&event)?;
        two.values(&[ValueOp::Wait { address: word.at(0), at_least: 1 }])?;
    }
    println!("waiting");
    two.synchronise()
}

const QUEUES: &str = "child-queues";

/// The number of queues is fixed before CUDA starts, so each try is a process. The second one is the
/// control: it requests 8, CUDA's default.
pub fn queues(_: &Rig) -> Outcome {
    let said = |connections: Option<&str>| {
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        match connections {
            Some(connections) => command.env("CUDA_DEVICE_MAX_CONNECTIONS", connections),
            None => command.env_remove("CUDA_DEVICE_MAX_CONNECTIONS"),
        };
        let output = command.arg(QUEUES).output().expect("it starts");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!((said(None), said(Some("8"))), ("32 queues, gets on\n".into(), "8 queues, is held\n".into()));
    Ok(())
}

/// Reports whether a stream advances beside twelve that wait for it. The host releases them after a second.
fn waits_of_many() -> Outcome {
    let device = halocline_device::Device::new(CudaDriver::open(0)?);
    let streams = (0..13).map(|_| device.stream(Priority::Highest)).collect::<Result<Vec<_>, _>>()?;
    let (word, begin) = (device.allocate_pinned(8)?, Instant::now());
    let (last, waiting) = streams.split_last().expect("there are some");
    // SAFETY: all streams are synchronised before the word goes, which streams and atomic operations alone access.
    let gets_on = unsafe {
        for stream in waiting {
            stream.values(&[ValueOp::Wait { address: word.at(0), at_least: 1 }])?;
        }
        last.values(&[ValueOp::Write { address: word.at(0), value: 1 }])?;
        while word.load(0) == 0 && begin.elapsed() < Duration::from_secs(1) {
            std::thread::yield_now();
        }
        let gets_on = word.load(0) == 1;
        word.store(0, 1);
        gets_on
    };
    println!("{} queues, {}", device.queues(), if gets_on { "gets on" } else { "is held" });
    streams.iter().try_for_each(halocline_device::Stream::synchronise)
}

const FAULT: &str = "child-fault";

/// The task of a child process.
pub fn child(what: &str) -> Option<ExitCode> {
    let outcome = match what {
        FAULT => faulty(),
        WAITING => waiting(),
        QUEUES => waits_of_many(),
        mappings::IMPORTER => mappings::importer(),
        _ => return None,
    };
    Some(match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("{why}");
            ExitCode::FAILURE
        }
    })
}

/// The context is lost, so this runs in a process of its own. The GPU is usable afterwards.
pub fn fault(rig: &Rig) -> Outcome {
    let program = std::env::current_exe().expect("this test");
    let output = Command::new(program).arg(FAULT).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    no_memory(rig)
}

fn faulty() -> Outcome {
    let gpu = Gpu::new(0)?;
    let device = halocline_device::Device::new(gpu.driver.clone());
    let stream = device.stream(Priority::Normal)?;
    let (memory, pool) = (device.allocate(64)?, device.events());
    let event = pool.take()?;
    assert_eq!(device.failure(), None);
    gpu.fault(&stream)?;
    let lost = stream.synchronise().expect_err("it has failed");
    assert!(
        matches!(&lost, DeviceError::Lost { device: 0, what } if what.contains("ILLEGAL_ADDRESS")),
        "{lost}"
    );
    assert_eq!(device.failure(), Some(lost.clone()));
    let ends = ([memory.at(0)], [memory.at(32)]);
    // SAFETY: the device refuses all of these, so that nothing is accessed.
    let copied = unsafe { stream.copy(memory.at(0), memory.at(32), 8) };
    let refusals = [
        stream.record(&event),
        stream.wait(&event),
        stream.query().map(drop),
        stream.synchronise(),
        event.query().map(drop),
        device.allocate(8).map(drop),
        device.place_of(memory.at(0)).map(drop),
        device.upload(&table(&[], &ends)).map(drop),
        gpu.empty(&stream),
        copied,
    ];
    for (number, refusal) in refusals.into_iter().enumerate() {
        assert_eq!(refusal, Err(lost.clone()), "{number}");
    }
    Ok(())
}
