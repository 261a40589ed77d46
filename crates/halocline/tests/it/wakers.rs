//! Wakers that do more than a waker should.

use halocline::{
    Array, BindOptions, Communicator, Decomposed, Error, Halo, HaloExchange, LinkChoice, RegularGrid,
};
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

/// Runs its task where it is woken, and the task makes a whole exchange, blocking.
struct Inline {
    halo: Arc<HaloExchange>,
    ended: mpsc::Sender<Result<(), Error>>,
}

impl Wake for Inline {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let ended = self.halo.exchange().and_then(|pending| pending.wait());
        // The receiver may be gone.
        let _ = self.ended.send(ended);
    }
}

#[test]
fn a_task_that_exchanges_where_it_is_woken_holds_up_no_link() {
    for link in [LinkChoice::Push, LinkChoice::Pull, LinkChoice::Mailbox, LinkChoice::Message] {
        let (asleep, awake) = mpsc::channel::<()>();
        let mut awake = Some(awake);
        let mut ranks = Vec::new();
        for comm in Communicator::threads(2) {
            let (asleep, awake) = (asleep.clone(), if comm.rank() == 1 { awake.take() } else { None });
            ranks.push(std::thread::spawn(move || {
                let pattern = RegularGrid::new([4]).periodic([true]).decompose(2).unwrap();
                let pattern = pattern.pattern(&comm, Halo::uniform(1)).unwrap();
                let array = Array::<f64>::zeros(&comm, &[4]).unwrap();
                let options = BindOptions::default().link(link);
                let halo = Arc::new(HaloExchange::bind_with(&comm, [(&pattern, &*array)], &options).unwrap());
                if let Some(awake) = awake {
                    awake.recv().unwrap();
                    return [halo.exchange().unwrap().wait(), halo.exchange().unwrap().wait()];
                }
                let (ended, end) = mpsc::channel();
                let waker: Waker = Arc::new(Inline { halo: Arc::clone(&halo), ended }).into();
                let mut exchanging = halo.begin().into_future();
                // Until it no longer looks by itself, but sleeps to be woken.
                let begin = Instant::now();
                while begin.elapsed() < Duration::from_millis(50) {
                    assert!(Pin::new(&mut exchanging).poll_is_pending(&waker));
                }
                asleep.send(()).unwrap();
                // The first look of a task that is woken by itself finds its exchange in flight.
                let whole = end.iter().find(Result::is_ok).expect("the waker has made a whole exchange");
                [whole, Ok(())]
            }));
        }
        for rank in ranks {
            for ended in rank.join().unwrap() {
                ended.unwrap_or_else(|error| panic!("{link:?}: {error}"));
            }
        }
    }
}

trait PollIsPending {
    fn poll_is_pending(self, waker: &Waker) -> bool;
}

impl<F: Future> PollIsPending for Pin<&mut F> {
    fn poll_is_pending(self, waker: &Waker) -> bool {
        self.poll(&mut Context::from_waker(waker)).is_pending()
    }
}
