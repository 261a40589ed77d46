//! Provokes messages that no other test names.

use super::limits::{passes, process_of};
use halocline::comm::shm::Job;
use halocline::neighbors::{NeighborError, NeighborExchange, Side, Sides};
use halocline::plan::Side as HalfOf;
use halocline::plan::wire::{Reader, WireError};
use halocline::{
    Array, BindError, BindOptions, Communicator, Decomposed, DeviceArray, ElementType, Error, Field, Halo,
    HaloExchange, Layout, LayoutError, Pattern, Redistribute, RegularGrid,
};
use halocline_comm::memory_resource::{
    Buffer, HostMemory, MemoryError, MemoryKind, MemoryResource, MemoryStatistics, Reservation,
};
use halocline_comm::mpi::{self, MpiError};
use halocline_comm::packet::{HeaderError, Packet, PacketContext, PacketError, PacketSend, PacketTag};
use halocline_comm::sparse::{Role, SparseAlltoall, SparseError};
use halocline_comm::{Call, CommError, Endpoint, Segment};
use halocline_device::sim::{Kernel, Options, Report, World, run};
use halocline_device::{Priority, ValueOp};
use halocline_program::cache::{Cache, CacheError};
use rustix::process::{Signal, getpid, kill_process};
use std::process::Stdio;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

#[test]
fn layouts_of_wrong_elements_strides_and_axes_are_refused() {
    let strided = |extents: &[usize], strides: &[isize]| Layout::strided(ElementType::F64, extents, strides);
    assert!(matches!(strided(&[2, 3], &[8]), Err(LayoutError::Dimensions { extents: 2, strides: 1 })));
    let overlap = strided(&[4, 3], &[8, 24]);
    assert!(matches!(overlap, Err(LayoutError::Overlap { dim: 1, stride: 24, span: 32 })), "{overlap:?}");
    let size = Layout::c_order(ElementType::Opaque(300), &[2]);
    assert!(matches!(size, Err(LayoutError::ElementSize(300))), "{size:?}");
    let endless = Layout::c_order(ElementType::F64, &[2, usize::MAX]);
    assert!(matches!(endless, Err(LayoutError::TooLarge)), "{endless:?}");
    let axes = Layout::c_order(ElementType::F64, &[2, 3]).unwrap().with_axes(&[0, 2]);
    assert!(matches!(axes, Err(LayoutError::Axis { dim: 2, dimensions: 2 })), "{axes:?}");
}

#[test]
fn a_message_that_ends_early_is_refused() {
    assert_eq!(Reader::new(&[0; 3]).u64(), Err(WireError::Short { missing: 5 }));
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
fn a_stream_that_works_on_freed_memory_is_reported() {
    let reports = reports(|world| {
        let device = world.device(0).unwrap();
        let stream = device.stream(Priority::Normal).unwrap();
        let (flag, memory) = (device.allocate_pinned(8).unwrap(), device.allocate(8).unwrap());
        // SAFETY: the flag lives until the stream is synchronised.
        unsafe { stream.values(&[ValueOp::Wait { address: flag.at(0), at_least: 1 }]) }.unwrap();
        world.launch(&stream, Kernel::new("late").writes(memory.at(0), 8)).unwrap();
        drop(memory);
        // SAFETY: only the stream and this call access the flag.
        unsafe { device.driver().store(flag.at(0), 1) };
        stream.synchronise().unwrap();
    });
    assert!(reports.iter().any(|report| matches!(report, Report::UsedAfterFree { .. })), "{reports:?}");
    let known = |report: &Report| matches!(report, Report::FreedInUse { .. } | Report::UsedAfterFree { .. });
    assert!(reports.iter().all(known), "{reports:?}");
}

#[test]
fn a_free_of_no_memory_is_reported() {
    // SAFETY: the simulated device looks the address up in a table, so that it takes any number.
    let reports = reports(|world| unsafe { world.device(0).unwrap().driver().free(8) });
    assert!(
        reports.iter().all(|report| matches!(report, Report::Refused { call: "free", .. })),
        "{reports:?}"
    );
    assert!(!reports.is_empty());
}

#[test]
fn more_memory_than_there_are_addresses_is_refused() {
    let bytes = 1 << 62;
    let error = Segment::shared(bytes).err();
    assert!(matches!(error, Some(CommError::Memory { bytes: refused, .. }) if refused == bytes), "{error:?}");
    let error = Communicator::single().link().allocate(bytes).err();
    assert!(matches!(error, Some(CommError::OutOfMemory(refused)) if refused == bytes), "{error:?}");
}

#[test]
fn transports_that_cannot_be_used_are_named() {
    let error = Communicator::init_by_name("pigeon").err();
    assert!(matches!(&error, Some(CommError::NoSuchTransport(name)) if name == "pigeon"), "{error:?}");
    let error = Communicator::init_by_name("shm").err();
    assert!(matches!(error, Some(CommError::NotLaunched)), "{error:?}");
}

#[test]
fn a_process_joins_its_job_once() {
    let job = Job::create(1).unwrap();
    let mut command = process_of("errors::provoked::joins_twice");
    job.prepare(0, &mut command);
    passes(&mut command);
}

#[test]
#[ignore = "the test above runs it, as a rank of a job"]
fn joins_twice() {
    let first = Communicator::init().unwrap();
    let second = Communicator::init().err();
    assert!(matches!(second, Some(CommError::JoinedTwice)), "{second:?}");
    drop(first);
}

#[test]
fn a_rank_that_is_killed_is_named() {
    let job = Job::create(2).unwrap();
    let [mut first, mut second] = [0, 1].map(|rank| {
        let mut command = process_of("errors::provoked::loses_rank_1");
        job.prepare(rank, &mut command);
        command
    });
    let mut rank_1 = second.stdout(Stdio::null()).spawn().unwrap();
    passes(&mut first);
    assert!(!rank_1.wait().unwrap().success());
}

#[test]
#[ignore = "the test above runs it, as two ranks of a job"]
fn loses_rank_1() {
    let comm = Communicator::init().unwrap();
    if comm.rank() == 1 {
        kill_process(getpid(), Signal::KILL).unwrap();
    }
    let error = comm.barrier().unwrap_err();
    let is_named = matches!(&error, CommError::Died { rank: 1, waiting: 0, what } if what == "a barrier");
    assert!(is_named, "{error}");
}

#[test]
fn a_rank_that_ends_before_it_joins_is_named() {
    let job = Job::create(2).unwrap();
    let mut command = process_of("errors::provoked::waits_for_rank_1");
    job.prepare(0, &mut command);
    job.ended(1);
    passes(&mut command);
}

#[test]
#[ignore = "the test above runs it, as a rank of a job"]
fn waits_for_rank_1() {
    let joined = Communicator::init().err();
    assert!(matches!(joined, Some(CommError::NeverJoined { rank: 1 })), "{joined:?}");
}

#[test]
fn an_mpi_library_that_is_not_there_is_named() {
    let path = std::path::Path::new("/nowhere/libmpi.so");
    match mpi::try_out(path) {
        Err(MpiError::Chosen { path: refused, chosen: "on trial", .. }) => assert_eq!(refused, path),
        other => panic!("instead of a refusal: {other:?}"),
    }
}

#[test]
fn a_panic_of_the_program_is_reported() {
    let reports = reports(|_| panic!("on purpose"));
    assert!(reports.iter().all(|report| matches!(report, Report::Panicked { .. })), "{reports:?}");
    assert!(reports[0].to_string().contains("on purpose"), "{reports:?}");
}

#[test]
fn a_panic_of_a_kernel_is_reported() {
    let reports = reports(|world| {
        let stream = world.device(0).unwrap().stream(Priority::Normal).unwrap();
        world.launch(&stream, Kernel::new("broken").body(|_| panic!("on purpose"))).unwrap();
        let _ = stream.synchronise();
    });
    let is_named = |report: &Report| matches!(report, Report::KernelPanicked { by, message } if by.what == "broken" && message.ends_with("on purpose"));
    assert!(!reports.is_empty() && reports.iter().all(is_named), "{reports:?}");
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

/// The error of each of two ranks.
pub(super) fn errors_of_two(
    program: impl Fn(&Communicator) -> Result<(), Error> + Sync,
) -> Vec<Option<Error>> {
    std::thread::scope(|scope| {
        let program = &program;
        let ranks =
            Communicator::threads(2).into_iter().map(|comm| scope.spawn(move || program(&comm).err()));
        let ranks: Vec<_> = ranks.collect();
        ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect()
    })
}

#[test]
fn an_object_of_different_patterns_on_different_ranks_cannot_be_narrowed() {
    let errors = errors_of_two(|comm| {
        // Nothing is exchanged, so that rank 1 need not bind the pattern.
        let pattern = RegularGrid::new([4]).decompose(2)?.pattern(comm, Halo::uniform(0))?;
        let array = Array::<u64>::zeros(comm, &[2])?;
        let fields: &[(&Pattern, &Field)] = &[(&pattern, &array)];
        let halo = HaloExchange::bind(comm, &fields[..1 - comm.rank()])?;
        halo.narrowed(&Halo::uniform(0)).map(drop)
    });
    assert!(matches!(errors[0], Some(Error::Elsewhere { rank: 1, .. })), "{errors:?}");
    let is_refused = matches!(errors[1], Some(Error::Bind(BindError::NarrowedPatterns { rank: 1 })));
    assert!(is_refused, "{errors:?}");
}

#[test]
fn a_pattern_of_a_communicator_with_more_ranks_is_refused() {
    let errors = errors_of_two(|comm| {
        let pattern = RegularGrid::new([4]).decompose(2)?.pattern(comm, 1)?;
        let array = Array::<u64>::zeros(comm, &[4])?;
        HaloExchange::bind(&Communicator::single(), [(&pattern, &array)]).map(drop)
    });
    let is_refused = |(rank, error): (usize, &Option<Error>)| {
        matches!(
            error,
            Some(Error::Bind(BindError::PatternRank { pattern: 0, peer, ranks: 1 })) if *peer == 1 - rank
        )
    };
    // Rank 0 of the pattern is a rank of the communicator.
    assert!(is_refused((0, &errors[0])), "{errors:?}");
}

#[test]
fn two_ranks_need_six_queues_of_a_device() {
    let options = Options { devices: 1, queues: Some(5), ..Options::default() };
    let world = World::live(1, &options).expect("threads");
    let errors = errors_of_two(|comm| {
        let pattern = RegularGrid::new([4]).decompose(2)?.pattern(comm, 1)?;
        let array = DeviceArray::<u64>::zeros(&world.world().device(0)?, &[4])?;
        HaloExchange::bind(comm, [(&pattern, &array)])?.exchange()?.wait()
    });
    let is_refused =
        |error: &Option<Error>| matches!(error, Some(Error::TooFewQueues { device: 0, queues: 5, ranks: 2 }));
    assert!(errors.iter().all(is_refused), "{errors:?}");
}

#[test]
fn fields_of_one_rank_lie_on_eight_devices_at_most() {
    let options = Options { devices: 9, ..Options::default() };
    let world = World::live(1, &options).expect("threads");
    let bound = || -> Result<(), Error> {
        let comm = Communicator::single();
        let grid = RegularGrid::new([18]).domains_per_rank(9);
        let pattern = grid.decompose(1)?.pattern(&comm, 1)?;
        let fields = pattern.domains().enumerate().map(|(at, domain)| {
            let device = world.world().device(at as u32)?;
            let array = DeviceArray::<u64>::zeros(&device, &domain.extents())?;
            Ok(array.on_domain(pattern.plan().domains[at].0))
        });
        let fields: Vec<Field> = fields.collect::<Result<_, Error>>()?;
        let fields: Vec<(&Pattern, &Field)> = fields.iter().map(|field| (&pattern, field)).collect();
        HaloExchange::bind(&comm, &fields).map(drop)
    };
    match bound() {
        Err(Error::Bind(BindError::TooManyDevices { devices: 9, most: 8 })) => {}
        other => panic!("instead of a refusal: {other:?}"),
    }
}

#[test]
fn device_fields_have_a_limited_number_of_sets() {
    let world = World::live(1, &Options { devices: 1, ..Options::default() }).expect("threads");
    let comm = Communicator::single();
    let bound = || -> Result<(), Error> {
        let pattern = RegularGrid::new([2]).decompose(1)?.pattern(&comm, 0)?;
        let array = DeviceArray::<u64>::zeros(&world.world().device(0)?, &[2])?;
        let mut sets: Vec<&[(&Pattern, &Field)]> = vec![&[]; 7_282];
        let set = [(&pattern, &*array)];
        sets[0] = &set;
        HaloExchange::bind_alternatives(&comm, &sets, &BindOptions::default()).map(drop)
    };
    match bound() {
        Err(Error::Bind(BindError::TooManySets { sets: 7_282, most: 7_281 })) => {}
        other => panic!("instead of a refusal: {other:?}"),
    }
}

#[test]
fn ranks_on_devices_of_two_machines_have_no_direct_links() {
    let options = Options { devices: 1, ..Options::default() };
    let worlds = [1, 2].map(|seed| World::live(seed, &options).expect("threads"));
    let errors = errors_of_two(|comm| {
        let pattern = RegularGrid::new([4]).decompose(2)?.pattern(comm, 1)?;
        let device = worlds[comm.rank()].world().device(0)?;
        let array = DeviceArray::<u64>::zeros(&device, &[4])?;
        HaloExchange::bind_with(comm, [(&pattern, &array)], &BindOptions::default()).map(drop)
    });
    // Both find it.
    for (rank, error) in errors.iter().enumerate() {
        let Some(Error::Bind(BindError::OtherMachine { peer, device: 0 })) = error else {
            panic!("{errors:?}")
        };
        assert_eq!(*peer, 1 - rank, "{errors:?}");
    }
}

/// Runs `rank` on two threads.
pub(super) fn on_two_ranks(rank: impl Fn(Communicator) + Sync) {
    let rank = &rank;
    std::thread::scope(|threads| {
        Communicator::threads(2).into_iter().for_each(|comm| drop(threads.spawn(move || rank(comm))));
    });
}

#[test]
fn wrong_sets_and_calls_of_a_sparse_all_to_all_are_refused() {
    on_two_ranks(|comm| {
        let (rank, peer) = (comm.rank(), 1 - comm.rank());
        let new = |sources: &[usize], destinations: &[usize]| {
            SparseAlltoall::new(&comm, sources, destinations, Arc::new(HostMemory::of(&comm)))
        };
        let itself = new(&[rank], &[peer]).err().unwrap();
        assert!(matches!(itself, SparseError::Itself { role: Role::Source, .. }), "{itself}");
        let twice = new(&[peer], &[peer, peer]).err().unwrap();
        assert!(matches!(twice, SparseError::Duplicate { role: Role::Destination, .. }), "{twice}");
        let unknown = new(&[7], &[peer]).err().unwrap();
        assert!(
            matches!(unknown, SparseError::NoSuchPeer { peer: 7, role: Role::Source, size: 2 }),
            "{unknown}"
        );
        let exchange = new(&[peer], &[peer]).unwrap();
        let stranger = exchange.insert(rank, Packet::default()).unwrap_err();
        assert!(matches!(stranger, SparseError::NotNamed { role: Role::Destination, .. }), "{stranger}");
        assert!(matches!(exchange.wait(), Err(SparseError::NotFinished)));
        exchange.finish();
        let late = exchange.insert(peer, Packet::default()).unwrap_err();
        assert!(matches!(late, SparseError::Finished { .. }), "{late}");
        exchange.wait().unwrap();
        // Rank 0 drops the next one before it has finished.
        let exchange = new(&[peer], &[peer]).unwrap();
        if rank == 0 {
            drop(exchange);
        } else {
            exchange.finish();
            let dropped = exchange.wait().unwrap_err();
            assert!(dropped.to_string().contains(&SparseError::Dropped.to_string()), "{dropped}");
        }
        comm.barrier().unwrap();
    });
}

#[test]
fn a_packet_has_a_limited_amount_of_metadata() {
    let comm = Communicator::single();
    let memory = || Arc::new(HostMemory::of(&comm));
    let (bytes, most) = (Packet::MOST_METADATA + 1, Packet::MOST_METADATA);
    let packet = || Packet::new(vec![0; bytes], None);
    let ring = NeighborExchange::ring(&comm, memory()).unwrap();
    let error = ring.start(0, Sides { left: None, right: Some(packet()) }).err().unwrap();
    let expected = NeighborError::Metadata { side: Side::Right, bytes, most };
    assert_eq!(error.to_string(), expected.to_string());
    let context = PacketContext::new(&comm, memory()).unwrap();
    let tag = PacketTag { operation: comm.begin(), channel: 0 };
    let error = PacketSend::new(0, tag, packet()).poll(&context).unwrap_err();
    let is_refused = matches!(error, PacketError::Metadata { to: 0, found, most: limit } if (found, limit) == (bytes, most));
    assert!(is_refused, "{error}");
}

#[test]
fn fields_that_are_not_on_a_side_of_a_redistribution_are_refused() -> Result<(), Error> {
    let (comm, none) = (Communicator::single(), Halo::uniform(0));
    let (one, two) =
        (RegularGrid::new([4]).decompose(1)?, RegularGrid::new([4]).domains_per_rank(2).decompose(1)?);
    let moved = Redistribute::regular(&comm, (&one, &none), (&two, &none))?;
    let (whole, half) = (Array::<u64>::zeros(&comm, &[4])?, Array::<u64>::zeros(&comm, &[2])?);
    let error = moved.bind(&comm, whole.on_domain(7), ()).expect_err("domain 7");
    let is_refused =
        matches!(&error, Error::NotOnSide { domain: 7, side: HalfOf::First, domains } if domains[..] == [0]);
    assert!(is_refused, "{error}");
    let error = moved.bind(&comm, [&whole], [&half]).expect_err("two domains");
    let is_refused =
        matches!(&error, Error::WhichDomain { side: HalfOf::Second, domains } if domains[..] == [0, 1]);
    assert!(is_refused, "{error}");
    Ok(())
}

#[test]
fn a_program_cache_without_a_folder_is_refused() {
    passes(process_of("errors::provoked::without_a_cache_folder").env("HALOCLINE_CACHE", "off"));
}

#[test]
#[ignore = "the test above runs it, where no folder is set"]
fn without_a_cache_folder() {
    let cache = Cache::of_user().err();
    assert!(matches!(cache, Some(CacheError::NoFolder)), "{cache:?}");
}

#[test]
fn a_malformed_message_of_a_sparse_all_to_all_is_named() {
    on_two_ranks(|comm| {
        if comm.rank() == 1 {
            // The number of rank 0's operation.
            let tag = PacketTag { operation: Call::lasting(&comm, "SparseAlltoall").operation(), channel: 0 };
            comm.send(0, tag.control(), 99u32.to_le_bytes().to_vec()).unwrap();
        } else {
            let exchange = SparseAlltoall::new(&comm, &[1], &[], Arc::new(HostMemory::of(&comm))).unwrap();
            exchange.finish();
            let error = exchange.wait().unwrap_err();
            let is_named = |error: &HeaderError| matches!(error, HeaderError::Field { value: 99, .. });
            assert!(
                matches!(&error, SparseError::Malformed { from: 1, error } if is_named(error)),
                "{error}"
            );
        }
        comm.barrier().unwrap();
    });
}

/// A memory resource whose buffers have another length than it was asked for.
struct Short;

impl MemoryResource for Short {
    fn kind(&self) -> MemoryKind {
        MemoryKind::Host
    }

    fn allocate(&self, bytes: usize) -> Result<Buffer, MemoryError> {
        Ok(vec![0; bytes / 2].into())
    }

    fn statistics(&self) -> MemoryStatistics {
        MemoryStatistics { kind: self.kind(), in_use: 0, peak: 0, allocations: 0, spilled: 0 }
    }
}

#[test]
fn a_memory_resource_that_gives_another_length_is_refused() {
    let error = Reservation::new(8).poll(&Short, Duration::ZERO, Waker::noop()).unwrap_err();
    assert!(matches!(error, MemoryError::Faulty { asked: 8, .. }), "{error}");
}
