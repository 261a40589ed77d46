//! What users read: explanations and errors, word for word.

use halocline::comm::mappings::MappingError;
use halocline::comm::mappings::Refusal;
use halocline::comm::shm::JobError;
use halocline::plan::wire::WireError;
use halocline::{
    Array, BindOptions, Cause, CommError, Communicator, Decomposed, DeviceError, Difference, Direction,
    ElementType, Error, FailedLink, Failure, Fault, Field, Halo, HaloExchange, Layout, LayoutError,
    LinkChoice, LinkPath, MeshError, PartitionError, Pattern, PatternError, PatternLinks, Redistribute,
    RegularGrid, UnstructuredDomain,
};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

/// What `text` gives on the first of so many thread ranks.
fn on_rank_0(ranks: usize, text: impl Fn(&Communicator) -> Result<String, Error> + Sync) -> String {
    std::thread::scope(|scope| {
        let text = &text;
        let ranks: Vec<_> =
            Communicator::threads(ranks).into_iter().map(|comm| scope.spawn(move || text(&comm))).collect();
        let texts =
            ranks.into_iter().map(|rank| rank.join().expect("no panic").unwrap_or_else(|e| e.to_string()));
        texts.collect::<Vec<_>>().swap_remove(0)
    })
}

fn plane(comm: &Communicator, width: usize) -> Result<Pattern, Error> {
    let grid = RegularGrid::new([8, 6]).periodic([true, true]);
    grid.decompose(comm.size())?.pattern(comm, Halo::uniform(width))
}

fn array(comm: &Communicator, pattern: &Pattern) -> Result<Array<f64>, Error> {
    Array::zeros(comm, &pattern.plan().domains[0].1.extents())
}

fn by(link: LinkChoice) -> BindOptions {
    BindOptions::default().link(link)
}

#[test]
fn explanations_of_every_path() {
    let text = on_rank_0(2, |comm| {
        let pattern = plane(comm, 1)?;
        let mut text = String::new();
        for link in [LinkChoice::Push, LinkChoice::Pull, LinkChoice::Message] {
            let array = array(comm, &pattern)?;
            text += &HaloExchange::bind_with(comm, [(&pattern, &array)], &by(link))?.explain();
        }
        Ok(text)
    });
    insta::assert_snapshot!(text);
}

#[test]
fn explanation_of_alternatives_narrowed() {
    let text = on_rank_0(2, |comm| {
        let pattern = plane(comm, 2)?;
        let (one, other) = (array(comm, &pattern)?, array(comm, &pattern)?);
        let sets: [&[(&Pattern, &Field)]; 2] = [&[(&pattern, &one)], &[(&pattern, &one), (&pattern, &other)]];
        let wide = HaloExchange::bind_alternatives(comm, &sets, &by(LinkChoice::Push))?;
        Ok(wide.explain() + "narrowed\n" + &wide.narrowed(&Halo::uniform(1))?.explain())
    });
    insta::assert_snapshot!(text);
}

#[test]
fn explanation_of_links_without_fields() {
    let text = on_rank_0(3, |comm| PatternLinks::new(comm, &[&plane(comm, 1)?]).map(|links| links.explain()));
    insta::assert_snapshot!(text);
}

/// A call that must fail.
type Wrong = fn(&Communicator) -> Result<(), Error>;

/// As [`Wrong`], with a pattern.
type WrongWith = fn(&Communicator, &Pattern) -> Result<(), Error>;

#[test]
fn errors_of_wrong_arguments() {
    let refused = |wrong: WrongWith| {
        on_rank_0(1, move |comm| {
            let pattern = plane(comm, 1)?;
            Ok(wrong(comm, &pattern).expect_err("it is wrong").to_string())
        })
    };
    let cases: [WrongWith; 12] = [
        |comm, pattern| {
            let small = Array::<f64>::zeros(comm, &[8, 6])?;
            HaloExchange::bind(comm, [(pattern, &small)]).map(drop)
        },
        |comm, pattern| {
            let flat = Array::<f64>::zeros(comm, &[100])?;
            HaloExchange::bind(comm, [(pattern, &flat)]).map(drop)
        },
        |comm, pattern| {
            let layout = Layout::c_order(ElementType::F64, &[9, 6])?.with_origin(&[3, 1]);
            let array = Array::<f64>::with_layout(comm, layout)?;
            HaloExchange::bind(comm, [(pattern, &array)]).map(drop)
        },
        |comm, pattern| {
            let layout = Layout::c_order(ElementType::F64, &[10, 8])?.with_origin(&[0, 1]);
            let array = Array::<f64>::with_layout(comm, layout)?;
            HaloExchange::bind(comm, [(pattern, &array)]).map(drop)
        },
        |comm, pattern| {
            let array = array(comm, pattern)?;
            HaloExchange::bind(comm, [(pattern, &array), (pattern, &array)]).map(drop)
        },
        |comm, pattern| {
            let array = array(comm, pattern)?;
            let halo = HaloExchange::bind(comm, [(pattern, &array)])?;
            let _guard = array.write()?;
            halo.exchange().map(drop)
        },
        |comm, pattern| {
            let array = array(comm, pattern)?;
            HaloExchange::bind(comm, [(pattern, &array)])?.begin().set(2).start().map(drop)
        },
        |comm, pattern| {
            let array = array(comm, pattern)?;
            HaloExchange::bind(comm, [(pattern, &array)])?.pack(7, &mut []).map(drop)
        },
        |comm, pattern| {
            let array = array(comm, pattern)?;
            HaloExchange::bind_alternatives(
                comm,
                &[&[][..], &[(pattern, &array), (pattern, &array)]],
                &by(LinkChoice::Auto),
            )
            .map(drop)
        },
        |comm, pattern| {
            let other = plane(comm, 1)?;
            let links = PatternLinks::new(comm, &[pattern])?;
            let array = array(comm, &other)?;
            links.exchange(&[(&other, &array)]).map(drop)
        },
        |comm, _| Array::<f64>::with_layout(comm, Layout::c_order(ElementType::F32, &[4])?).map(drop),
        |comm, _| {
            let layout = Layout::strided(ElementType::F64, &[3, 4], &[48, 12])?;
            Array::<f64>::with_layout(comm, layout).map(drop)
        },
    ];
    let mut text = String::new();
    for wrong in cases {
        writeln!(text, "{}", refused(wrong)).expect("a string");
    }
    insta::assert_snapshot!(text);
}

/// Domain 10 + r on rank r with cell r, and domain 20 + r with cell r + 1 of as many.
fn turn(comm: &Communicator) -> Result<Redistribute, Error> {
    let (rank, size) = (comm.rank() as u64, comm.size() as u64);
    let from = UnstructuredDomain::new(10 + rank, vec![rank], vec![]);
    let to = UnstructuredDomain::new(20 + rank, vec![(rank + 1) % size], vec![]);
    Redistribute::unstructured(comm, &[from], &[to])
}

/// Domains are called as their user has numbered them, and on which side.
#[test]
fn errors_of_redistributions() {
    let cases: [(usize, Wrong); 8] = [
        (2, |comm| {
            let (wide, narrow) = (Array::<f64>::zeros(comm, &[1])?, Array::<f32>::zeros(comm, &[1])?);
            turn(comm)?.bind(comm, [&wide], [&narrow]).map(drop)
        }),
        (1, |comm| {
            let (wide, narrow) = (Array::<f64>::zeros(comm, &[1])?, Array::<f32>::zeros(comm, &[1])?);
            turn(comm)?.back().bind(comm, [&wide], [&narrow]).map(drop)
        }),
        (1, |comm| {
            let array = Array::<f64>::zeros(comm, &[1])?;
            turn(comm)?.bind(comm, [&array], [&array, &array]).map(drop)
        }),
        (2, |comm| {
            let (long, none) = (Array::<f64>::zeros(comm, &[1])?, Array::<f64>::zeros(comm, &[0])?);
            turn(comm)?.bind(comm, [&long], [&none]).map(drop)
        }),
        (1, |comm| {
            let array = Array::<f64>::zeros(comm, &[1])?;
            turn(comm)?.bind(comm, [&array], [&array]).map(drop)
        }),
        (1, |comm| turn(comm)?.pattern().narrowed(comm, &Halo::uniform(0)).map(drop)),
        (2, |comm| {
            let domain = |cells: &[u64]| UnstructuredDomain::new(comm.rank() as u64, cells.to_vec(), vec![]);
            let (twice, once) = ([5, 5].map(|cell| cell + comm.rank() as u64), [5 + comm.rank() as u64]);
            Redistribute::unstructured(comm, &[domain(&twice)], &[domain(&once)]).map(drop)
        }),
        (2, |comm| {
            let domain = |cells: &[u64]| UnstructuredDomain::new(comm.rank() as u64, cells.to_vec(), vec![]);
            let mine = 5 + comm.rank() as u64;
            let twice: &[u64] = if comm.rank() == 1 { &[mine, mine] } else { &[mine] };
            Redistribute::unstructured(comm, &[domain(&[mine])], &[domain(twice)]).map(drop)
        }),
    ];
    let mut text = String::new();
    for (ranks, wrong) in cases {
        let said = on_rank_0(ranks, |comm| Ok(wrong(comm).expect_err("it is wrong").to_string()));
        writeln!(text, "{said}").expect("a string");
    }
    insta::assert_snapshot!(text);
}

#[test]
fn errors_of_exchanges_that_fail() {
    let (rank, epoch, direction) = (0, 3, Direction::Receive);
    let link = Some(FailedLink { peer: 1, direction, path: LinkPath::Mailbox { streaming: false } });
    let mut text = String::new();
    for (cause, culprit, epoch) in [
        (Cause::Died, 1, epoch),
        (Cause::Died, 4, epoch),
        (Cause::Died, 1, 1),
        (Cause::Dropped, 1, epoch),
        (Cause::Deadline(Some(Duration::from_secs(2))), 1, epoch),
        (Cause::Deadline(None), 1, epoch),
        (Cause::Malformed, 1, epoch),
        (Cause::Transport, 1, epoch),
        (Cause::Fields(Difference::Fields), 1, epoch),
        (Cause::Fields(Difference::Element { field: 2 }), 1, epoch),
        (Cause::Fields(Difference::Extents { field: 0 }), 0, epoch),
        (Cause::Check(Fault::NotWritten), 1, epoch),
        (Cause::Check(Fault::OtherSet), 4, epoch),
    ] {
        let failure = Failure { rank, epoch, link, cause, culprit, report: None };
        writeln!(text, "{}", Error::Failed(Arc::new(failure))).expect("a string");
    }
    let report = Some("device 0 has failed".to_owned());
    let failure = Failure { rank, epoch, link: None, cause: Cause::Device, culprit: rank, report };
    writeln!(text, "{}", Error::Failed(Arc::new(failure))).expect("a string");
    for error in [
        Error::InFlight { epoch },
        Error::Shared { field: 1 },
        Error::NoSuchPeer { peer: 5, direction, peers: vec![1, 2] },
        Error::MessageLength { peer: 1, expected: 80, found: 8 },
        Error::Elsewhere { rank: 2, message: "domain 7 is not on this rank".to_owned() },
    ] {
        writeln!(text, "{error}").expect("a string");
    }
    insta::assert_snapshot!(text);
}

/// `fn main() -> Result<(), Error>` prints the text, not names and fields of Rust.
#[test]
fn what_main_returns_is_printed_as_its_text() {
    fn reads<E: std::error::Error>(error: &E) {
        let text = error.to_string();
        assert_eq!([format!("{error:?}"), format!("{error:#?}")], [text.clone(), text]);
    }
    let failure = Failure {
        rank: 0,
        epoch: 3,
        link: Some(FailedLink { peer: 1, direction: Direction::Receive, path: LinkPath::Message }),
        cause: Cause::Died,
        culprit: 1,
        report: None,
    };
    reads(&failure);
    let layout = LayoutError::Axis { dim: 3, dimensions: 2 };
    reads(&layout);
    reads(&PatternError::from(PartitionError::MoreRanksThanCells { ranks: 4, cells: 1 }));
    let mesh = MeshError::Arity { arity: 3, entries: 10 };
    let partition = PartitionError::MoreRanksThanCells { ranks: 4, cells: 1 };
    let device = DeviceError::NoDevice { device: 3, count: 1 };
    let job = JobError::Ranks { found: 0 };
    let comm = CommError::from(job.clone());
    reads(&mesh);
    reads(&partition);
    reads(&device);
    reads(&job);
    reads(&comm);
    let refusal = Refusal::Private;
    reads(&refusal);
    reads(&MappingError::from(comm.clone()));
    let wire = WireError::Short { missing: 8 };
    reads(&wire);
    for error in [
        Error::Failed(Arc::new(failure)),
        layout.into(),
        mesh.into(),
        partition.into(),
        device.into(),
        comm.into(),
        Error::InFlight { epoch: 3 },
    ] {
        reads(&error);
    }
    let main = || -> Result<(), Error> { Err(Error::NoSuchSet { set: 2, sets: 1 }) };
    // What the standard library prints of it.
    assert_eq!(
        format!("Error: {:?}", main().unwrap_err()),
        "Error: there is no set 2: the object has 1, counted from 0; give a number below 1"
    );
}
