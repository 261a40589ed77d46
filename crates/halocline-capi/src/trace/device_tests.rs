//! Traces of streams, on simulated devices.

use super::*;
use crate::exchange::halocline_schedule_exchange;
use crate::pending::halocline_schedule_wait;
use crate::status::halocline_error_message;
use halocline::device::Priority;
use halocline::device::sim::{self, Kernel, KernelMemory, World};
use halocline::{BindOptions, Decomposed, DeviceArray, HaloExchange, RegularGrid};
use std::ffi::{CStr, CString};
use std::time::Instant;

/// Stamps of a simulated device: nanoseconds since now.
fn stamps(world: &World, stream: &Stream, rounds: usize) -> Result<Stamps, Error> {
    let (world, start) = (world.clone(), Instant::now());
    let stamp = move |stream: &Stream, at| {
        let body = move |memory: &mut KernelMemory<'_>| {
            memory.write(at, 1 + start.elapsed().as_nanos() as u64);
        };
        world.launch(stream, Kernel::new("stamp").writes(at, 8).body(body))
    };
    Stamps::with(stream, rounds, Box::new(stamp))
}

fn message() -> String {
    // SAFETY: the message stays until this thread's next call.
    unsafe { CStr::from_ptr(halocline_error_message()) }.to_string_lossy().into_owned()
}

#[test]
fn the_moments_of_a_stream_become_spans_of_the_trace() {
    let live = sim::World::live(0, &sim::Options::default()).unwrap();
    let device = live.world().device(0).unwrap();
    let comm = Communicator::single();
    let pattern = RegularGrid::new([4]).periodic([true]).pattern(&comm, 1).unwrap();
    let array = DeviceArray::<f64>::zeros(&device, &[6]).unwrap();
    let stream = Arc::new(device.stream(Priority::Normal).unwrap());
    let options = BindOptions::default().streams([Arc::clone(&stream)]);
    let halo = Handle::new(HaloExchange::bind_with(&comm, [(&pattern, &array)], &options).unwrap()).unwrap();
    let stream = Handle::new(stream).unwrap();

    let file = std::env::temp_dir().join(format!("halocline-device-trace-{}.json", std::process::id()));
    let path = CString::new(file.to_str().unwrap()).unwrap();
    let comm = Handle::new(Comm { comm, group: 1 }).unwrap();
    let mut trace = Handle::from_number(0);
    // SAFETY: the path is a string.
    let begun = unsafe { halocline_trace_begin(comm, path.as_ptr(), OutPtr::of(&mut trace)) };
    assert_eq!(begun, Status::OK, "{}", message());
    let stamps = |stream: &Stream| stamps(live.world(), stream, 2);
    let steps = trace.pin().unwrap().record(&stream.pin().unwrap(), stamps).unwrap();
    // The third round is not recorded.
    for _ in 0..3 {
        let mut pending = PendingExchange { exchange: 0, epoch: 0 };
        assert_eq!(halocline_device_trace_stamp(steps, 0), Status::OK);
        // SAFETY: there is one stream.
        let begun = unsafe { halocline_schedule_exchange(halo, 0, &stream, 1, OutPtr::of(&mut pending)) };
        assert_eq!(begun, Status::OK, "{}", message());
        assert_eq!(halocline_device_trace_observe(steps, pending), Status::OK, "{}", message());
        assert_eq!(halocline_device_trace_stamp(steps, 1), Status::OK);
        assert_eq!(halocline_schedule_wait(pending, stream), Status::OK);
        assert_eq!(halocline_device_trace_stamp(steps, 2), Status::OK);
        assert_eq!(halocline_device_trace_stamp(steps, 3), Status::OK);
    }
    assert_eq!(halocline_device_trace_stamp(steps, 4), Status::ARGUMENT);
    assert!(message().contains("pass one of HALOCLINE_MOMENT_*"), "{}", message());
    assert_eq!(halocline_trace_end(trace), Status::OK, "{}", message());
    assert_eq!(halocline_device_trace_stamp(steps, 0), Status::ARGUMENT);
    assert!(message().contains("was ended"), "{}", message());

    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    for name in ["interior", "exchange (device)", "boundary"] {
        assert_eq!(text.matches(&format!("\"name\":\"{name}\"")).count(), 2, "{name}: {text}");
    }
    assert!(!text.contains("\"events_left_out\":0"), "{text}");
    assert!(live.reports().is_empty(), "{:?}", live.reports());
}
