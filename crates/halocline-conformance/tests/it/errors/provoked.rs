//! Provokes messages that no other test names.

use halocline::{
    Array, BindError, BindOptions, Communicator, Decomposed, DeviceArray, ElementType, Error, Field, Halo,
    HaloExchange, Layout, LayoutError, Pattern, RegularGrid,
};
use halocline_comm::memory_resource::{
    Buffer, HostMemory, MemoryError, MemoryKind, MemoryResource, MemoryStatistics, Reservation,
};
use halocline_comm::mpi::{self, MpiError};
use halocline_comm::packet::{HeaderError, Packet, PacketTag};
use halocline_comm::sparse::{Role, SparseAlltoall, SparseError};
use halocline_comm::{Call, CommError, Endpoint};
use halocline_device::sim::{Kernel, Options, Report, World, run};
use halocline_device::{Priority, ValueOp};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

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
    let error = Communicator::single().link().allocate(bytes).err();
    assert!(matches!(error, Some(CommError::OutOfMemory(refused)) if refused == bytes), "{error:?}");
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
fn errors_of_two(program: impl Fn(&Communicator) -> Result<(), Error> + Sync) -> Vec<Option<Error>> {
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
fn ranks_on_devices_of_two_machines_have_no_direct_links() {
    let options = Options { devices: 1, ..Options::default() };
    let worlds = [1, 2].map(|seed| World::live(seed, &options).expect("threads"));
    let errors = errors_of_two(|comm| {
        let pattern = RegularGrid::new([4]).decompose(2)?.pattern(comm, 1)?;
        let device = worlds[comm.rank()].world().device(0)?;
        let array = DeviceArray::<u64>::zeros(&device, &[4])?;
        HaloExchange::bind_with(comm, [(&pattern, &array)], &BindOptions::default()).map(drop)
    });
    let is_typed = |error: &Option<Error>| {
        matches!(
            error,
            Some(Error::Bind(BindError::OtherMachine { device: 0, .. }) | Error::Elsewhere { .. })
        )
    };
    assert!(errors.iter().all(is_typed), "{errors:?}");
    assert!(!errors.iter().all(|error| matches!(error, Some(Error::Elsewhere { .. }))), "{errors:?}");
}

/// Runs `rank` on two threads.
fn on_two_ranks(rank: impl Fn(Communicator) + Sync) {
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
    assert!(matches!(error, MemoryError::Foreign { asked: 8, .. }), "{error}");
}
