//! Each report of device fields provoked, on simulated devices, and none where nothing is wrong.

use super::*;
use crate::check::Sabotage;
use crate::error::{Cause, Fault};
use crate::lock::lock;
use crate::{
    Array, BindOptions, Communicator, Decomposed, DeviceArray, Error, Failure, Field, Halo, HaloExchange,
    LinkChoice, RegularGrid,
};
use halocline_device::sim::{Live, Options, World};
use halocline_device::{Priority, Stream};
use std::sync::Arc;
use std::time::Duration;

const PATHS: [LinkChoice; 5] =
    [LinkChoice::Auto, LinkChoice::Push, LinkChoice::Pull, LinkChoice::Mailbox, LinkChoice::Message];

/// What is done to a filled halo, what it is found to be, and what is said of its cells then.
const WRONGS: [(Sabotage, Fault, &str); 2] = [
    // SAFETY: the device has copied the region, and nobody else uses it.
    (|region, epoch| unsafe { region.fill(epoch) }, Fault::NotWritten, "were not written from"),
    // SAFETY: the device has copied the region, which has a cell, and nobody else uses it.
    (|region, _| unsafe { region.spoil() }, Fault::Changed, "are not what"),
];

fn live() -> Live {
    let options = Options { depth: 1024, ordered_threads: true, ..Options::default() };
    World::live(7, &options).expect("a world")
}

fn options(link: LinkChoice, inline: bool) -> BindOptions {
    BindOptions::default().link(link).inline(inline).checked(true).name("t")
}

/// Runs the same as each of two ranks.
fn on_ranks<T: Send>(work: impl Fn(&Communicator) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let work = &work;
        let ranks: Vec<_> =
            Communicator::threads(2).into_iter().map(|comm| scope.spawn(move || work(&comm))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap_or_else(|e| std::panic::resume_unwind(e))).collect()
    })
}

/// A ring of two cells in each domain, with one halo cell at each side.
struct Ring {
    stream: Stream,
    arrays: Vec<DeviceArray<f64>>,
    halo: HaloExchange,
}

impl Ring {
    /// Each rank has a device of its own, and so many domains.
    fn new(world: &World, comm: &Communicator, domains: usize, options: &BindOptions) -> Self {
        let device = world.device(comm.rank() as u32).unwrap();
        let grid = RegularGrid::new([2 * domains * comm.size()]).periodic([true]).domains_per_rank(domains);
        let pattern = grid.decompose(comm.size()).unwrap().pattern(comm, Halo::uniform(1)).unwrap();
        let stream = device.stream(Priority::Normal).unwrap();
        let arrays: Vec<_> =
            (0..domains).map(|_| DeviceArray::<f64>::zeros(&device, &[4]).unwrap()).collect();
        arrays.iter().for_each(|array| array.write(&stream, &[-1.0, 1.5, 2.5, -1.0]).unwrap());
        let fields: Vec<Field> = (pattern.plan().domains.iter().zip(&arrays))
            .map(|((domain, _), array)| array.on_domain(*domain))
            .collect();
        let fields: Vec<_> = fields.iter().map(|field| (&pattern, field)).collect();
        let halo = HaloExchange::bind_with(comm, &fields[..], options).unwrap();
        Self { stream, arrays, halo }
    }

    fn step(&self) -> Result<(), Error> {
        self.halo.schedule_exchange(&[&self.stream])?.wait()
    }

    fn sabotage(&self, sabotage: Sabotage) {
        let checks = self.halo.scheduled.as_ref().and_then(|scheduled| scheduled.checks.as_ref());
        *lock(&checks.expect("checked mode").sabotage) = Some(sabotage);
    }

    fn until_failure(&self) -> Arc<Failure> {
        loop {
            match self.step() {
                Ok(()) => {}
                Err(Error::Failed(failure)) => return failure,
                Err(other) => panic!("{other}"),
            }
        }
    }
}

/// Rank 1 finds an exchange wrong, names its cells, and rank 0 hears of it.
fn is_named(failures: &[Arc<Failure>], fault: Fault, named: &[&str]) {
    for failure in failures {
        assert_eq!((failure.cause, failure.culprit), (Cause::Check(fault), 1), "{failure}");
    }
    let text = failures[1].to_string();
    named.iter().for_each(|named| assert!(text.contains(named), "{named}: {text}"));
}

#[test]
fn what_is_wrong_with_a_halo_on_a_device_is_named() {
    let live = live();
    for (link, inline) in PATHS.into_iter().flat_map(|link| [(link, false), (link, true)]) {
        for (sabotage, fault, said) in WRONGS {
            let failures = on_ranks(|comm| {
                let ring = Ring::new(live.world(), comm, 1, &options(link, inline));
                (0..3).for_each(|_| ring.step().unwrap());
                assert_eq!(ring.arrays[0].read(&ring.stream).unwrap(), [2.5, 1.5, 2.5, 1.5]);
                if comm.rank() == 1 {
                    ring.sabotage(sabotage);
                }
                ring.until_failure()
            });
            let of = "halo cells [-1..0] of field 0 of domain 1 (pattern 0 of the bind)";
            is_named(
                &failures,
                fault,
                &["exchange 4 failed on the link from rank 0", of, said, "domain 0 of rank 0"],
            );
        }
    }
    assert!(live.world().reports().is_empty(), "{:?}", live.world().reports());
}

#[test]
fn what_is_wrong_between_domains_of_a_device_is_named() {
    let live = live();
    for (sabotage, fault, said) in WRONGS {
        let failures = on_ranks(|comm| {
            let ring = Ring::new(live.world(), comm, 2, &options(LinkChoice::Auto, false));
            (0..3).for_each(|_| ring.step().unwrap());
            if comm.rank() == 1 {
                ring.sabotage(sabotage);
            }
            ring.until_failure()
        });
        is_named(&failures, fault, &["exchange 4 failed within the rank: ", said, "of rank 1"]);
    }
}

#[test]
fn what_is_wrong_with_device_fields_beside_host_fields_is_named() {
    let live = live();
    for (sabotage, fault, said) in WRONGS {
        let failures = on_ranks(|comm| {
            let device = live.world().device(comm.rank() as u32).unwrap();
            let pattern = RegularGrid::new([4]).periodic([true]).decompose(2).unwrap();
            let pattern = pattern.pattern(comm, Halo::uniform(1)).unwrap();
            let stream = device.stream(Priority::Normal).unwrap();
            let (here, there) =
                (Array::<f64>::zeros(comm, &[4]).unwrap(), DeviceArray::<f64>::zeros(&device, &[4]).unwrap());
            let fields: [(_, &Field); 2] = [(&pattern, &here), (&pattern, &there)];
            let halo = HaloExchange::bind_with(comm, fields, &options(LinkChoice::Auto, false)).unwrap();
            let ring = Ring { stream, arrays: vec![there], halo };
            (0..3).for_each(|_| ring.step().unwrap());
            if comm.rank() == 1 {
                ring.sabotage(sabotage);
            }
            ring.until_failure()
        });
        is_named(&failures, fault, &["exchange 4 failed", said]);
    }
}

/// The halo of a rank whose peer never comes.
#[test]
fn halo_cells_on_a_device_hold_the_fill_pattern_in_flight() {
    let live = live();
    for (link, inline) in PATHS.into_iter().flat_map(|link| [(link, false), (link, true)]) {
        on_ranks(|comm| {
            let options = options(link, inline).deadline(Duration::from_millis(50));
            let ring = Ring::new(live.world(), comm, 1, &options);
            ring.step().unwrap();
            comm.barrier().unwrap();
            if comm.rank() == 0 {
                let failure = ring.until_failure();
                assert!(matches!(failure.cause, Cause::Deadline(_)), "{failure}");
                while !ring.halo.reclaim() {
                    std::thread::yield_now();
                }
                let cells = ring.arrays[0].read(&ring.stream).unwrap();
                assert!(cells[0].is_nan() && cells[3].is_nan(), "{link:?}: {cells:?}");
                assert_eq!(cells[1..3], [1.5, 2.5], "{link:?}");
            }
            comm.barrier().unwrap();
        });
    }
}

/// One thread drives both ranks: no begin waits for a peer, however many exchanges are in flight and unchecked.
#[test]
fn a_thread_begins_many_checked_exchanges_of_two_ranks() {
    let live = live();
    for link in PATHS {
        let rings = on_ranks(|comm| (Ring::new(live.world(), comm, 1, &options(link, false)), comm.clone()));
        for (ring, _) in &rings {
            for _ in 0..20 {
                ring.halo.schedule_exchange(&[&ring.stream]).unwrap().schedule_wait(&ring.stream).unwrap();
            }
        }
        for (ring, _) in &rings {
            ring.halo.wait().unwrap();
            assert_eq!(ring.arrays[0].read(&ring.stream).unwrap(), [2.5, 1.5, 2.5, 1.5], "{link:?}");
        }
    }
}

/// The cells of a region lie one after the other, in the order in which checksums count them.
#[test]
fn packed_cells_have_the_checksum_of_the_field() {
    use halocline_plan::{BoxCells, ElementType};
    let axis = |stride, extent| AxisLayout { stride, origin: 1, extent };
    let boxes =
        (Cells::Box(BoxCells { low: vec![-1, 1], extent: vec![2, 3] }), vec![axis(5 * 30, 4), axis(30, 5)]);
    let lists = (Cells::from_indices([9, 4, 5, 0]), vec![AxisLayout { stride: 30, origin: 0, extent: 20 }]);
    for (cells, axes) in [boxes, lists] {
        // Two extra dimensions, the second with a gap, of elements of 5 bytes.
        let extra = vec![(2, 5), (3, 10)];
        let layout = CellLayout { element: ElementType::Opaque(5), units: 1, name: None, axes, extra };
        let mut field: Vec<u8> = (0..20 * 30u32).map(|byte| (byte * 7 % 251) as u8).collect();
        let region = Region::new(&cells, &layout, field.as_mut_ptr());
        let domain = crate::DomainName { number: 0, side: None, component: None };
        let of = Exchanged { region, field: 0, pattern: 0, number: 0, domain, other: domain };
        let spot = Spot { role: Role::Target, of, lane: 0, offset: 16 };
        let mut area = vec![0u8; spot.range().end];
        spot.packing().for_each_block(|from, to, bytes| {
            area[to as usize..][..bytes].copy_from_slice(&field[from as usize..][..bytes]);
        });
        let packed = region.packed(area[16..].as_mut_ptr());
        // SAFETY: both regions lie in memory of this thread.
        unsafe {
            assert_eq!(packed.checksum(), region.checksum());
            packed.fill(3);
            assert_eq!((packed.unwritten(3).0, region.unwritten(3).0), (cells.count(), 0));
        }
        spot.packing().reversed().for_each_block(|from, to, bytes| {
            field[to as usize..][..bytes].copy_from_slice(&area[from as usize..][..bytes]);
        });
        // SAFETY: the region lies in memory of this thread.
        assert_eq!(unsafe { region.unwritten(3) }.0, cells.count());
    }
}
