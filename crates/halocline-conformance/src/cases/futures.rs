//! Exchanges that async tasks await.

use super::fixture::Line;
use crate::stage::Stage;
use crate::{Case, Outcome, ensure};
use halocline::Exchanging;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

pub(crate) const CASES: &[Case] = &[
    Case { name: "futures::awaited", run: awaited },
    Case { name: "futures::several_at_once_in_any_order", run: several },
    Case { name: "futures::cancelled_and_taken_up_again", run: cancelled },
];

/// An executor of one task: this thread.
struct Executor(Thread);

impl Wake for Executor {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn waker() -> Waker {
    Waker::from(Arc::new(Executor(std::thread::current())))
}

pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let (waker, mut future) = (waker(), pin!(future));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

fn awaited(comm: &Stage<'_>) -> Outcome {
    for link in comm.paths() {
        let line = Line::new(comm)?;
        let halo = line.bind(comm, link)?;
        for step in 1..30 {
            line.fill(step)?;
            // Some ranks wait as a thread, others as a task.
            match (step + comm.rank() as u64) % 3 {
                0 => halo.exchange()?.wait()?,
                1 => block_on(halo.begin().into_future())?,
                _ => block_on(halo.exchange()?.into_future())?,
            }
            line.check(step)?;
        }
    }
    Ok(())
}

fn several(comm: &Stage<'_>) -> Outcome {
    let lines = [Line::new(comm)?, Line::new(comm)?, Line::new(comm)?];
    let mut objects = Vec::new();
    for (line, link) in lines.iter().zip(comm.choices().into_iter().skip(1)) {
        objects.push(line.bind(comm, link)?);
    }
    for step in 1..20 {
        lines.iter().try_for_each(|line| line.fill(step))?;
        let mut flying: Vec<Exchanging> = objects.iter().map(|object| object.begin().into_future()).collect();
        flying.rotate_left(comm.rank() % 3);
        for future in flying {
            block_on(future)?;
        }
        lines.iter().try_for_each(|line| line.check(step))?;
    }
    Ok(())
}

fn cancelled(comm: &Stage<'_>) -> Outcome {
    for link in comm.paths() {
        let line = Line::new(comm)?;
        let halo = line.bind(comm, link)?;
        for step in 1..if comm.is_on_device() { 20 } else { 60 } {
            line.fill(step)?;
            let mut future = halo.begin().into_future();
            let waker = waker();
            for _ in 0..(7 * step + comm.rank() as u64) % 23 {
                if Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).is_ready() {
                    break;
                }
            }
            drop(future);
            let pending = halo.pending();
            ensure!(pending.as_ref().is_some_and(|pending| pending.epoch() == step), "{pending:?} of {step}");
            match pending {
                Some(pending) if step % 2 == 0 => block_on(pending.into_future())?,
                _ => halo.wait()?,
            }
            line.check(step)?;
        }
    }
    Ok(())
}
