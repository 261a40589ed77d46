//! What patterns cost for many ranks, cells or messages. All of them:
//!
//!     cargo test --release -p halocline-conformance --test scale -- --include-ignored --nocapture --test-threads 1

use halocline::neighbors::{NeighborExchange, Sides};
use halocline::{
    Communicator, Halo, HostMemory, Mesh, Packet, Partition, PatchGrid, Pattern, Quantity, RegularGrid,
    Shared, UnstructuredDomain,
};
use halocline_comm::{CommError, Cores, Doorbell, Endpoint, Host, Inbox, PeerState, Segment, Tag, Transport};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Counts the bytes that are allocated, and the most that ever were.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: hands everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        MOST.fetch_max(NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`, which is that of the system's allocator, too.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, base: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`, which is that of the system's allocator, too: it gave the
        // memory.
        unsafe { System.dealloc(base, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What some work took.
struct Cost {
    time: Duration,
    /// Bytes allocated at once, beyond those before.
    peak: usize,
    /// Bytes still allocated.
    kept: usize,
}

fn cost<T>(work: impl FnOnce() -> T) -> (T, Cost) {
    let before = NOW.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let begin = Instant::now();
    let result = work();
    let time = begin.elapsed();
    let [peak, kept] = [&MOST, &NOW].map(|bytes| bytes.load(Ordering::Relaxed).saturating_sub(before));
    (result, Cost { time, peak, kept })
}

/// One test at a time: bytes are counted for the whole process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn on_threads<T: Send>(ranks: Vec<Communicator>, rank: impl Fn(Communicator) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let rank = &rank;
        let threads = ranks.into_iter().map(|comm| {
            let thread = std::thread::Builder::new().stack_size(256 << 10);
            thread.spawn_scoped(scope, move || rank(comm)).expect("a thread")
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

#[test]
fn the_plan_of_one_rank_of_a_million_is_small() {
    let _alone = alone();
    let (pattern, Cost { time, peak, kept }) = cost(|| {
        let decomposition = RegularGrid::new([100_000, 100_000, 128]).decompose(1_000_000).expect("blocks");
        decomposition.pattern_of(123_456, &Halo::uniform(1)).expect("a pattern")
    });
    println!(
        "one rank of a million: {time:?}, at most {peak} bytes, {kept} kept; {} peers",
        pattern.peers.len()
    );
    assert_eq!(pattern.peers.len(), 8);
    assert!(peak < 10_000_000, "{peak} bytes");
}

#[test]
fn the_plan_of_one_rank_of_a_million_of_the_cubed_sphere_is_small() {
    let _alone = alone();
    let (pattern, Cost { time, peak, kept }) = cost(|| {
        let tiles = PatchGrid::cubed_sphere(36_864).expect("tiles").decompose(1_000_000).expect("blocks");
        tiles.pattern_of(123_456, &Quantity::c_grid(), &Halo::uniform(3)).expect("a pattern")
    });
    let of_peers = pattern.peers.iter().map(|peer| peer.sends.len() + peer.receives.len());
    let transfers = of_peers.sum::<usize>() + pattern.local.len();
    println!(
        "one rank of a million of the cubed sphere: {time:?}, at most {peak} bytes, {kept} kept; {} peers, {transfers} transfers",
        pattern.peers.len()
    );
    // At most two blocks, each with eight neighbours and two components.
    assert!(transfers <= 2 * 2 * 2 * 8, "{transfers} transfers");
    assert!((4..32).contains(&pattern.peers.len()), "{} peers", pattern.peers.len());
    assert!(peak < 1_000_000, "{peak} bytes");
}

/// The triangles of FESOM's `pi` mesh.
fn ocean() -> Mesh {
    let text = include_str!("../../../data/fesom-pi/elem2d.out");
    let mut numbers = text.split_whitespace().map(|word| word.parse::<u32>().expect("a number"));
    let elements = numbers.next().expect("the number of elements") as usize;
    let corners: Vec<u32> = numbers.map(|number| number - 1).collect();
    assert_eq!(corners.len(), 3 * elements);
    let vertices = corners.iter().max().expect("a vertex") + 1;
    Mesh::new(vertices as usize, 3, corners).expect("a mesh")
}

#[test]
#[ignore = "6 million triangles; `tools/test --all` runs it"]
fn the_ocean_refined_five_times_on_four_ranks() {
    let _alone = alone();
    const RANKS: usize = 4;
    let coarse = ocean();
    let partition = Partition::metis(&coarse.element_graph(2).expect("a graph"), RANKS).expect("a partition");
    let part = |rank| coarse.refined_part(&partition, rank, 32, 1).expect("a part");
    let (parts, made) = cost(|| on_threads(Communicator::threads(RANKS), |comm| part(comm.rank())));
    let triangles: usize = parts.iter().map(|part| part.mesh().elements().len()).sum();
    println!("refined: {triangles} triangles in all parts, {:?}, {} bytes", made.time, made.kept);

    let (here, Cost { time, peak, kept }) = cost(|| {
        on_threads(Communicator::threads(RANKS), |comm| {
            let halos = parts[comm.rank()].halos(1, Shared::Vertex).expect("halos");
            let triangles = Pattern::unstructured(&comm, std::slice::from_ref(halos.elements()));
            let nodes = Pattern::unstructured(&comm, std::slice::from_ref(halos.vertices()));
            (triangles.expect("a pattern"), nodes.expect("a pattern"), halos)
        })
    });
    let owned: usize = here.iter().map(|(.., halos)| halos.owned_elements()).sum();
    assert_eq!(owned, 5839 * 1024);
    let of_kind =
        |halos: &halocline::MeshHalos<'_>| [halos.elements().cells().len(), halos.vertices().cells().len()];
    let cells: usize = here.iter().flat_map(|(.., halos)| of_kind(halos)).sum();
    println!(
        "patterns of triangles and nodes: {time:?}; {cells} local cells, at most {} bytes a cell, {} kept",
        peak / cells,
        kept / cells
    );
    assert!(peak < 400 * cells, "{peak} bytes for {cells} cells");
}

/// A thread rank that counts the messages that it sends.
struct Counted {
    inner: Communicator,
    sent: Arc<AtomicU64>,
}

// SAFETY: everything is done by the transport of `inner`; it only counts.
unsafe impl Transport for Counted {
    fn post(&self, to: usize, tag: Tag, payload: Vec<u8>, with: &[Arc<Segment>]) -> Result<(), CommError> {
        self.sent.fetch_add(1, Ordering::Relaxed);
        self.inner.link().post(to, tag, payload, with)
    }

    fn name(&self) -> &'static str {
        "counted"
    }

    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn inbox(&self) -> &Inbox {
        self.inner.link().inbox()
    }

    fn allocate(&self, bytes: usize) -> Result<Arc<Segment>, CommError> {
        self.inner.allocate(bytes)
    }

    fn reach(&self, peer: usize, segment: &Segment) -> Result<(), String> {
        self.inner.link().reach(peer, segment)
    }

    fn bell(&self, rank: usize) -> Option<&Doorbell> {
        self.inner.link().bell(rank)
    }

    fn leave(&self) {
        self.inner.link().leave();
    }

    fn own_bell(&self) -> &Doorbell {
        self.inner.link().own_bell()
    }

    fn state(&self, rank: usize) -> PeerState {
        self.inner.link().state(rank)
    }

    fn departures(&self) -> u64 {
        self.inner.link().departures()
    }

    fn host(&self) -> &dyn Host {
        self.inner.link().host()
    }

    fn cores(&self) -> Cores {
        self.inner.link().cores()
    }
}

/// Cells of a block of [`blocks`], along each axis.
const SIDE: usize = 4;

/// The domain of a rank that owns a block of a periodic plane, with a halo of depth 1. Cells are
/// numbered block by block, or row by row of the plane.
fn block(rank: usize, rows: usize, columns: usize, by_row: bool) -> UnstructuredDomain {
    let (height, width) = (SIDE * rows, SIDE * columns);
    let id = |i: usize, j: usize| -> u64 {
        let (i, j) = (i % height, j % width);
        let block = (i / SIDE) * columns + j / SIDE;
        let within = i % SIDE * SIDE + j % SIDE;
        (if by_row { i * width + j } else { block * SIDE * SIDE + within }) as u64
    };
    let (top, left) = (height + rank / columns * SIDE, width + rank % columns * SIDE);
    let all = (top - 1..=top + SIDE).flat_map(|i| (left - 1..=left + SIDE).map(move |j| (i, j)));
    let is_owned =
        |&(i, j): &(usize, usize)| (top..top + SIDE).contains(&i) && (left..left + SIDE).contains(&j);
    let (owned, halo): (Vec<_>, Vec<_>) = all.partition(is_owned);
    let ids = |cells: Vec<(usize, usize)>| cells.into_iter().map(|(i, j)| id(i, j)).collect();
    UnstructuredDomain::new(rank as u64, ids(owned), ids(halo))
}

/// Most messages that a rank sends to make the pattern of a plane of blocks; and its most peers.
fn messages(rows: usize, columns: usize, by_row: bool) -> (u64, usize) {
    let ranks = Communicator::threads(rows * columns);
    let counted = on_threads(ranks, |inner| {
        let sent = Arc::new(AtomicU64::new(0));
        let rank = inner.rank();
        let comm = Communicator::over(Arc::new(Counted { inner, sent: Arc::clone(&sent) }));
        let pattern = Pattern::unstructured(&comm, &[block(rank, rows, columns, by_row)]).expect("a pattern");
        (sent.load(Ordering::Relaxed), pattern.plan().peers.len())
    });
    counted.into_iter().fold((0, 0), |most, one| (most.0.max(one.0), most.1.max(one.1)))
}

/// In the directory, messages go to homes, owners and, log(ranks) of them, up and down trees.
fn assert_few_messages(rows: usize, columns: usize) {
    for by_row in [false, true] {
        let (sent, peers) = messages(rows, columns, by_row);
        let log = (rows * columns).ilog2() as u64;
        println!("{} ranks, numbered by row: {by_row}: {sent} messages, {peers} peers", rows * columns);
        let most = 12 * peers as u64 + 14 * log;
        assert!(sent <= most, "{sent} messages of one of {} ranks, more than {most}", rows * columns);
    }
}

#[test]
fn messages_of_the_directory_are_of_the_order_of_neighbours_and_log_ranks() {
    let _alone = alone();
    for (rows, columns) in [(4, 4), (8, 8), (16, 16)] {
        assert_few_messages(rows, columns);
    }
}

#[test]
#[ignore = "1,024 ranks; `tools/test --all` runs it"]
fn messages_of_the_directory_of_many_ranks_are_of_that_order_too() {
    let _alone = alone();
    assert_few_messages(32, 32);
}

/// Most messages that a rank of a ring sends in a few rounds with its neighbours.
fn messages_of_rounds(ranks: usize) -> u64 {
    const ROUNDS: u64 = 3;
    let counted = on_threads(Communicator::threads(ranks), |inner| {
        let sent = Arc::new(AtomicU64::new(0));
        let rank = inner.rank();
        let comm = Communicator::over(Arc::new(Counted { inner, sent: Arc::clone(&sent) }));
        let ring = NeighborExchange::ring(&comm, Arc::new(HostMemory::of(&comm))).expect("a ring");
        // A rank whose neighbour begins late asks it: that is no message of a round.
        comm.barrier().expect("all have begun");
        let before = sent.load(Ordering::Relaxed);
        for round in 0..ROUNDS {
            let packet =
                || Some(Packet::new(rank.to_le_bytes().to_vec(), Some(vec![round as u8; 100].into())));
            let came = ring.exchange(0, Sides { left: packet(), right: packet() }).expect("a round");
            let [left, right] = [came.left, came.right].map(|packet| packet.expect("a packet").metadata);
            assert_eq!(left, ((rank + ranks - 1) % ranks).to_le_bytes());
            assert_eq!(right, ((rank + 1) % ranks).to_le_bytes());
        }
        sent.load(Ordering::Relaxed) - before
    });
    counted.into_iter().max().unwrap_or(0)
}

#[test]
fn messages_of_a_round_between_neighbours_do_not_grow_with_the_ranks() {
    let _alone = alone();
    // A header and a payload to each side in each of three rounds.
    for ranks in [2, 10, 100, 1000] {
        assert_eq!(messages_of_rounds(ranks), 12, "{ranks} ranks");
    }
}

#[test]
#[ignore = "a payload of over 2 GiB; `tools/test --all` runs it"]
fn a_payload_of_over_two_gibibytes_reaches_a_neighbour() {
    let _alone = alone();
    for outcome in on_threads(Communicator::threads(2), |comm| halocline_conformance::large::rank(&comm)) {
        outcome.expect("the payload arrives");
    }
}
