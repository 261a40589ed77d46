//! The conformance programs of all devices on simulated ones, under many seeds.

use crate::suite::{Outcome, PROGRAMS, Rig};
use halocline_device::sim::{Kernel, KernelMemory, Options, World, explore};
use halocline_device::{Device, Memory, Stream};

struct SimRig<'a> {
    world: &'a World,
    devices: [Device; 2],
    cases: u32,
}

impl<'a> SimRig<'a> {
    fn new(world: &'a World, cases: u32) -> Self {
        let devices = [0, 1].map(|ordinal| world.device(ordinal).expect("there are two"));
        devices[0].enable_peer(&devices[1]).expect("reached");
        devices[1].enable_peer(&devices[0]).expect("reached");
        Self { world, devices, cases }
    }
}

fn words(memory: &Memory) -> u64 {
    memory.place().bytes as u64 / 8
}

impl Rig for SimRig<'_> {
    fn devices(&self) -> &[Device; 2] {
        &self.devices
    }

    fn fill(&self, stream: &Stream, memory: &Memory, value: u64) -> Outcome {
        let (base, words) = (memory.at(0), words(memory));
        let kernel = Kernel::new("fill").writes(base, memory.place().bytes);
        self.world.launch(
            stream,
            kernel.body(move |m| (0..words).for_each(|at| m.write(base + 8 * at, value + at))),
        )
    }

    fn check(&self, stream: &Stream, memory: &Memory, value: u64) -> Outcome {
        let (base, words) = (memory.at(0), words(memory));
        let kernel = Kernel::new("check").reads(base, memory.place().bytes);
        let check = move |m: &mut KernelMemory<'_>| {
            (0..words).for_each(|at| assert_eq!(m.read(base + 8 * at), value + at, "word {at}"));
        };
        self.world.launch(stream, kernel.body(check))
    }

    fn delay(&self, _: &Stream) -> Outcome {
        Ok(())
    }

    fn pause(&self) {
        self.world.pause();
    }

    fn threads(&self, body: &(dyn Fn(usize) -> Outcome + Sync)) -> Outcome {
        self.world.ranks(2, body).into_iter().flatten().collect()
    }

    fn cases(&self) -> u32 {
        self.cases
    }

    fn accesses(&self) -> usize {
        250
    }
}

#[test]
fn simulated_devices_pass_the_suite_of_all_devices() {
    for (name, program) in PROGRAMS {
        println!("{name}");
        explore(0..30, &Options::default(), |world| {
            program(&SimRig::new(world, 2)).expect("no call is refused")
        });
    }
}

#[test]
fn simulated_devices_copy_as_defined() {
    let copies = PROGRAMS.iter().find(|(name, _)| name.starts_with("tables copy")).expect("there is one").1;
    explore(0..1, &Options::default(), |world| copies(&SimRig::new(world, 100)).expect("no call is refused"));
}
