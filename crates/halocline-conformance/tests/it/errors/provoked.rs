//! Provokes messages that no other test names.

use halocline::{ElementType, Layout, LayoutError};
use halocline_device::Priority;
use halocline_device::sim::{Kernel, Options, Report, World, run};

#[test]
fn layouts_of_wrong_strides_are_refused() {
    let strided = |extents: &[usize], strides: &[isize]| Layout::strided(ElementType::F64, extents, strides);
    assert!(matches!(strided(&[2, 3], &[8]), Err(LayoutError::Dimensions { extents: 2, strides: 1 })));
    let overlap = strided(&[4, 3], &[8, 24]);
    assert!(matches!(overlap, Err(LayoutError::Overlap { dim: 1, stride: 24, span: 32 })), "{overlap:?}");
}

/// The reports of a program on a simulated device, over some seeds.
fn reports(program: impl Fn(&World)) -> Vec<Report> {
    (0..100).flat_map(|seed| run(seed, &Options::default(), &program).reports).collect()
}

#[test]
fn two_streams_that_write_one_word_race() {
    let reports = reports(|world| {
        let device = world.device(0).unwrap();
        let streams = [(); 2].map(|()| device.stream(Priority::Normal).unwrap());
        let memory = device.allocate(8).unwrap();
        for stream in &streams {
            world.launch(stream, Kernel::new("writer").writes(memory.at(0), 8)).unwrap();
        }
        streams.iter().for_each(|stream| stream.synchronise().unwrap());
    });
    assert!(
        !reports.is_empty() && reports.iter().all(|report| matches!(report, Report::Race { .. })),
        "{reports:?}"
    );
}

#[test]
fn a_panic_of_the_program_is_reported() {
    let reports = reports(|_| panic!("on purpose"));
    assert!(reports.iter().all(|report| matches!(report, Report::Panicked { .. })), "{reports:?}");
    assert!(reports[0].to_string().contains("on purpose"), "{reports:?}");
}

#[test]
fn a_program_that_takes_too_many_steps_is_reported() {
    let options = Options { steps: 3, ..Options::default() };
    let reports = run(1, &options, |world| {
        let stream = world.device(0).unwrap().stream(Priority::Normal).unwrap();
        for _ in 0..10 {
            // Refused once the limit is reached.
            let _ = world.launch(&stream, Kernel::new("nothing"));
        }
        let _ = stream.synchronise();
    })
    .reports;
    assert!(matches!(reports[..], [Report::Endless { steps: 3, .. }]), "{reports:?}");
}
