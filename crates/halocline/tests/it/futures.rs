//! Exchanges as futures: with executors of others and one of our own, cancelled anywhere, moved, polled late.

mod executor;

use executor::{Alarm, Queue, block_on};
use halocline::{
    Array, BindOptions, Cause, Communicator, Decomposed, Error, Exchanging, Halo, HaloExchange, LinkChoice,
    RegularGrid,
};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

const PATHS: [LinkChoice; 4] = [LinkChoice::Push, LinkChoice::Pull, LinkChoice::Mailbox, LinkChoice::Message];

/// Two cells of a ring on each rank, one halo cell at each side.
struct Ring {
    comm: Communicator,
    array: Array<u64>,
    halo: HaloExchange,
}

fn value(cell: usize, step: u64) -> u64 {
    (cell as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ step.wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

impl Ring {
    fn new(comm: Communicator, options: &BindOptions) -> Self {
        let grid = RegularGrid::new([2 * comm.size()]).periodic([true]);
        let pattern = grid.decompose(comm.size()).unwrap().pattern(&comm, Halo::uniform(1)).unwrap();
        let array = Array::zeros(&comm, &[4]).unwrap();
        let halo = HaloExchange::bind_with(&comm, [(&pattern, &array)], options).unwrap();
        Self { comm, array, halo }
    }

    fn fill(&self, step: u64) {
        let first = 2 * self.comm.rank();
        let cells = [u64::MAX, value(first, step), value(first + 1, step), u64::MAX];
        self.array.write().unwrap().copy_from_slice(&cells);
    }

    fn check(&self, step: u64) {
        let (first, all) = (2 * self.comm.rank(), 2 * self.comm.size());
        let cells = self.array.read().unwrap();
        let expected = [value((first + all - 1) % all, step), value((first + 2) % all, step)];
        assert_eq!([cells[0], cells[3]], expected, "rank {}, step {step}", self.comm.rank());
    }

    /// The same of an exchange that nobody has waited for. It is over without being carried on.
    fn check_over(&self, step: u64) {
        assert!(self.halo.reclaim(), "it is not over");
        self.check(step);
    }

    async fn steps(&self, steps: std::ops::Range<u64>) {
        for step in steps {
            self.fill(step);
            self.halo.begin().await.unwrap();
            self.check(step);
        }
    }
}

fn by(link: LinkChoice) -> BindOptions {
    BindOptions::default().link(link)
}

/// Runs the same as each of so many ranks.
fn on_ranks<T: Send>(size: usize, work: impl Fn(Communicator) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let work = &work;
        let ranks: Vec<_> =
            Communicator::threads(size).into_iter().map(|comm| scope.spawn(move || work(comm))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap_or_else(|e| std::panic::resume_unwind(e))).collect()
    })
}

#[test]
fn each_rank_with_an_executor_of_its_own() {
    for link in PATHS {
        on_ranks(3, |comm| {
            let rank = comm.rank();
            let ring = Ring::new(comm, &by(link));
            match rank {
                0 => tokio::runtime::Builder::new_current_thread()
                    .build()
                    .unwrap()
                    .block_on(ring.steps(1..200)),
                1 => smol::block_on(ring.steps(1..200)),
                _ => block_on(ring.steps(1..200)),
            }
        });
    }
}

/// All ranks are tasks of one executor: a poll that blocked would end in a deadlock.
#[test]
fn ranks_as_tasks_of_one_thread() {
    for link in PATHS {
        let rings = || on_ranks(4, |comm| Ring::new(comm, &by(link)));
        let tokio = tokio::runtime::Builder::new_current_thread().build().unwrap();
        tokio.block_on(async {
            let tasks: Vec<_> = rings()
                .into_iter()
                .map(|ring| tokio::spawn(async move { ring.steps(1..50).await }))
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
        let executor = smol::LocalExecutor::new();
        let tasks: Vec<_> =
            rings().into_iter().map(|ring| executor.spawn(async move { ring.steps(1..50).await })).collect();
        smol::block_on(executor.run(async {
            for task in tasks {
                task.await;
            }
        }));
        let queue = Arc::new(Queue::default());
        for ring in rings() {
            queue.spawn(async move { ring.steps(1..50).await });
        }
        queue.run();
    }
}

/// Tasks move between the threads of an executor from poll to poll.
#[test]
fn ranks_as_tasks_of_several_threads() {
    for link in PATHS {
        let rings = || on_ranks(5, |comm| Ring::new(comm, &by(link)));
        let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(3).build().unwrap();
        let tasks: Vec<_> =
            rings().into_iter().map(|ring| tokio.spawn(async move { ring.steps(1..100).await })).collect();
        tokio.block_on(async {
            for task in tasks {
                task.await.unwrap();
            }
        });
        let queue = Arc::new(Queue::default());
        for ring in rings() {
            queue.spawn(async move { ring.steps(1..100).await });
        }
        std::thread::scope(|scope| {
            (0..3).for_each(|_| drop(scope.spawn(|| queue.run())));
        });
    }
}

/// Polls until the future has gone to sleep: it has not rung its waker by itself.
fn poll_to_sleep(future: &mut Exchanging, alarm: &Arc<Alarm>) -> Poll<Result<(), Error>> {
    let waker = Waker::from(Arc::clone(alarm));
    loop {
        let seen = alarm.rings();
        let polled = Pin::new(&mut *future).poll(&mut Context::from_waker(&waker));
        if polled.is_ready() || alarm.rings() == seen {
            return polled;
        }
    }
}

/// The rank that the others wait for begins only when the test lets it.
fn two_ends(options: &BindOptions) -> [Ring; 2] {
    let ends = on_ranks(2, |comm| Ring::new(comm, options));
    ends.try_into().unwrap_or_else(|_| unreachable!("two ranks"))
}

#[test]
fn the_last_executor_is_woken_and_no_other() {
    for link in PATHS {
        let [late, here] = two_ends(&by(link));
        for step in 1..50 {
            late.fill(step);
            here.fill(step);
            let (first, second) = (Arc::new(Alarm::default()), Arc::new(Alarm::default()));
            let mut future = here.halo.begin().into_future();
            assert!(poll_to_sleep(&mut future, &first).is_pending());
            let before = first.rings();
            // It moves, as a value and between executors.
            let mut future = Box::new(future);
            assert!(poll_to_sleep(&mut future, &second).is_pending());
            let seen = second.rings();
            late.halo.exchange().unwrap().wait().unwrap();
            second.sleep(seen);
            assert_eq!(first.rings(), before, "{link:?}: an executor that gave its task away was woken");
            assert!(matches!(poll_to_sleep(&mut future, &second), Poll::Ready(Ok(()))));
            here.check(step);
            late.check(step);
        }
    }
}

/// Nobody polls: the progress thread carries the exchange on, so that the other side is through, too.
#[test]
fn a_task_that_sleeps_is_carried_on() {
    for link in PATHS {
        let [late, here] = two_ends(&by(link));
        for step in 1..50 {
            late.fill(step);
            here.fill(step);
            let alarm = Arc::new(Alarm::default());
            let mut future = here.halo.begin().into_future();
            assert!(poll_to_sleep(&mut future, &alarm).is_pending());
            let seen = alarm.rings();
            late.halo.exchange().unwrap().wait().unwrap();
            late.check(step);
            alarm.sleep(seen);
            // Woken means over: not one more poll is needed to fill the halo.
            here.check_over(step);
            drop(future);
        }
    }
}

#[test]
fn an_outcome_is_given_again() {
    let [late, here] = two_ends(&by(LinkChoice::Auto));
    late.fill(1);
    here.fill(1);
    let mut future = here.halo.begin().into_future();
    let refused = block_on(here.halo.begin().into_future());
    assert!(matches!(refused, Err(Error::InFlight { epoch: 1 })), "{refused:?}");
    late.halo.exchange().unwrap().wait().unwrap();
    for _ in 0..3 {
        assert!(matches!(block_on(&mut future), Ok(())));
    }
    // Also after the next exchange was begun, and by a waker of somebody else.
    here.fill(2);
    let mut next = here.halo.begin().into_future();
    assert!(matches!(block_on(&mut future), Ok(())));
    drop(late);
    let first = block_on(&mut next).unwrap_err().to_string();
    assert_eq!(first, block_on(&mut next).unwrap_err().to_string());
    assert!(matches!(block_on(&mut future), Ok(())), "a failure changed what was over");
    assert!(matches!(block_on(here.halo.begin().into_future()), Err(Error::Failed(_))));
}

#[test]
fn several_tasks_wait_for_one_exchange() {
    for link in PATHS {
        let [late, here] = two_ends(&by(link));
        for step in 1..30 {
            late.fill(step);
            here.fill(step);
            let first = here.halo.begin().into_future();
            let again = || here.halo.pending().expect("one was begun").into_future();
            let mut all = [first, again(), again(), again()];
            let alarms = [(); 4].map(|()| Arc::new(Alarm::default()));
            for (future, alarm) in all.iter_mut().zip(&alarms) {
                assert!(poll_to_sleep(future, alarm).is_pending());
            }
            let seen: Vec<usize> = alarms.iter().map(|alarm| alarm.rings()).collect();
            late.halo.exchange().unwrap().wait().unwrap();
            for (alarm, seen) in alarms.iter().zip(seen) {
                alarm.sleep(seen);
            }
            here.check_over(step);
        }
    }
}

/// A program of several exchanges, dropped at each of its await points in turn.
#[test]
fn dropped_at_every_await_point() {
    async fn program(here: &[Ring; 2], polls: &AtomicUsize) {
        for step in 1..3 {
            for ring in here {
                ring.fill(step);
                ring.halo.begin().await.unwrap();
                ring.check(step);
                ring.halo.pending().unwrap().await.unwrap();
                polls.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    for link in PATHS {
        // How far it gets before it is dropped: through so many exchanges, and into the next.
        for through in 0..=4 {
            let ends = on_ranks(2, |comm| {
                [Ring::new(comm.duplicate().unwrap(), &by(link)), Ring::new(comm, &by(link))]
            });
            let [late, here]: [[Ring; 2]; 2] = ends.try_into().unwrap_or_else(|_| unreachable!("two ranks"));
            let done = AtomicUsize::new(0);
            let alarm = Arc::new(Alarm::default());
            let waker = Waker::from(Arc::clone(&alarm));
            let mut future = Box::pin(program(&here, &done));
            let mut answered = 0;
            let answer = |count: usize| {
                let (ring, step) = (&late[count % 2], 1 + count as u64 / 2);
                ring.fill(step);
                ring.halo.exchange().unwrap()
            };
            loop {
                let seen = alarm.rings();
                if future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                    break;
                }
                if done.load(Ordering::Relaxed) == through && alarm.rings() == seen {
                    break;
                }
                if answered < through && answered == done.load(Ordering::Relaxed) {
                    answer(answered).wait().unwrap();
                    answered += 1;
                }
                if alarm.rings() == seen {
                    alarm.sleep(seen);
                }
            }
            drop(future);
            assert_eq!(done.load(Ordering::Relaxed), through);
            if through < 4 {
                // The exchange that was cancelled is there and goes on.
                let pending = here[through % 2].halo.pending().expect("one was begun");
                assert!(!pending.is_ready().unwrap());
                answer(through).wait().unwrap();
                pending.wait().unwrap();
                here[through % 2].check(1 + through as u64 / 2);
            }
        }
    }
}

/// Numbers that look random (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (z ^ (z >> 27)) % limit
    }
}

/// Each rank cancels when it likes, and takes its exchange up again as it likes.
#[test]
fn cancelled_at_random_points_thousands_of_times() {
    const ROUNDS: u64 = 1500;
    for link in PATHS {
        on_ranks(3, |comm| {
            let mut numbers = Numbers(comm.rank() as u64 + 1);
            let ring = Ring::new(comm, &by(link));
            for step in 1..=ROUNDS {
                ring.fill(step);
                let mut future = ring.halo.begin().into_future();
                let alarm = Arc::new(Alarm::default());
                let waker = Waker::from(Arc::clone(&alarm));
                let mut ended = false;
                for _ in 0..numbers.below(40) {
                    let polled = Pin::new(&mut future).poll(&mut Context::from_waker(&waker));
                    ended |= matches!(polled, Poll::Ready(Ok(())));
                    assert!(ended || polled.is_pending(), "{polled:?}");
                }
                if numbers.below(4) == 0 && !ended {
                    // Until it sleeps.
                    ended = poll_to_sleep(&mut future, &alarm).is_ready();
                }
                drop(future);
                let pending = ring.halo.pending().expect("one was begun");
                assert_eq!(pending.epoch(), step);
                match numbers.below(5) {
                    _ if ended => {}
                    0 => pending.wait().unwrap(),
                    1 => block_on(pending.into_future()).unwrap(),
                    2 => ring.halo.wait().unwrap(),
                    3 => smol::block_on(pending.into_future()).unwrap(),
                    _ => {
                        while !pending.is_ready().unwrap() {
                            std::thread::yield_now();
                        }
                    }
                }
                ring.check(step);
            }
        });
    }
}

#[test]
fn a_deadline_ends_a_task_that_sleeps() {
    const DEADLINE: Duration = Duration::from_millis(20);
    for link in PATHS {
        let [late, here] = two_ends(&by(link).deadline(DEADLINE));
        let begun = Instant::now();
        match block_on(here.halo.begin().into_future()) {
            Err(Error::Failed(failure)) => {
                assert!(matches!(failure.cause, Cause::Deadline(Some(_))), "{failure}");
                assert_eq!(failure.culprit, 1 - failure.rank);
            }
            other => panic!("{link:?}: {other:?}"),
        }
        assert!(begun.elapsed() >= DEADLINE);
        // The other side is notified; what had been sent to it before may still arrive.
        let has_failed = (0..5).any(|_| block_on(late.halo.begin().into_future()).is_err());
        assert!(has_failed, "{link:?}: the other side goes on");
    }
}

#[test]
fn a_peer_that_goes_ends_a_task_that_sleeps() {
    for link in PATHS {
        let [late, here] = two_ends(&by(link));
        let alarm = Arc::new(Alarm::default());
        let mut future = here.halo.begin().into_future();
        assert!(poll_to_sleep(&mut future, &alarm).is_pending());
        let seen = alarm.rings();
        drop(late);
        alarm.sleep(seen);
        match poll_to_sleep(&mut future, &alarm) {
            Poll::Ready(Err(Error::Failed(failure))) => {
                assert_eq!(failure.cause, Cause::Dropped, "{failure}")
            }
            other => panic!("{link:?}: {other:?}"),
        }
    }
}

/// The object may go while its exchange is awaited.
#[test]
fn the_object_may_go_before_its_future() {
    for link in PATHS {
        let [late, here] = two_ends(&by(link));
        late.fill(1);
        here.fill(1);
        let Ring { comm, array, halo } = here;
        let future = halo.begin().into_future();
        drop(halo);
        late.halo.exchange().unwrap().wait().unwrap();
        late.check(1);
        block_on(future).unwrap();
        let expected = [value(3 - 2 * comm.rank(), 1), value(2 - 2 * comm.rank(), 1)];
        assert_eq!(array.read().unwrap()[..1], expected[..1]);
        assert_eq!(array.read().unwrap()[3..], expected[1..]);
    }
}

/// A waker that panics harms its own task alone.
#[test]
fn a_waker_that_panics_harms_nobody_else() {
    struct Broken;
    impl Wake for Broken {
        fn wake(self: Arc<Self>) {
            panic!("a waker of the test");
        }
    }
    for link in PATHS {
        let [late, here] = two_ends(&by(link));
        late.fill(1);
        here.fill(1);
        let mut broken = here.halo.begin().into_future();
        let alarm = Arc::new(Alarm::default());
        assert!(poll_to_sleep(&mut broken, &alarm).is_pending());
        let waker = Waker::from(Arc::new(Broken));
        assert!(Pin::new(&mut broken).poll(&mut Context::from_waker(&waker)).is_pending());
        let mut other = here.halo.pending().unwrap().into_future();
        assert!(poll_to_sleep(&mut other, &alarm).is_pending());
        let seen = alarm.rings();
        late.halo.exchange().unwrap().wait().unwrap();
        alarm.sleep(seen);
        here.check_over(1);
        for step in 2..10 {
            late.fill(step);
            here.fill(step);
            let mine = here.halo.exchange().unwrap();
            late.halo.exchange().unwrap().wait().unwrap();
            mine.wait().unwrap();
            here.check(step);
        }
    }
}
