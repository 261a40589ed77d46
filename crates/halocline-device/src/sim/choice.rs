//! The scheduler's choices: drawn from a seed, biased so that rare orders come soon, or replayed from a
//! record.

/// A task that can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    Thread(usize),
    Stream(usize),
}

impl Task {
    fn key(self) -> u64 {
        match self {
            Task::Thread(index) => index as u64,
            Task::Stream(index) => 1 << 32 | index as u64,
        }
    }
}

/// How a seed selects the next task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bias {
    /// Any task, with the same probability.
    Uniform,
    /// The running task continues for long.
    Sticky,
    /// Nearly always the host, as if devices were slow.
    SlowStreams,
    /// Nearly always a stream, as if the host were slow.
    SlowHost,
    /// Nearly never one particular task.
    Starve(u64),
    /// By priorities that change at random moments (probabilistic concurrency testing: Burckhardt et al.,
    /// ASPLOS 2010).
    Priorities,
    /// The task that became runnable last.
    Latest,
    /// Nearly always a runnable stream of the highest priority, as GPUs do.
    Urgent,
}

/// The choices of a run. Each is recorded as its distance from the plain choice, so a record of zeros is
/// the plainest run.
#[derive(Debug)]
pub(super) struct Choices {
    seed: u64,
    random: u64,
    salt: u64,
    bias: Bias,
    replay: Option<Vec<u16>>,
    made: Vec<u16>,
    /// Lowered priorities: key and rank; a higher rank is a lower priority.
    lowered: Vec<(u64, u64)>,
    /// Since when the tasks of the last choice have been runnable.
    since: Vec<(u64, u64)>,
    /// Streams of the highest priority.
    urgent: Vec<usize>,
}

/// A bijection of 64 bits that spreads close numbers (the finaliser of splitmix64).
pub(super) fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Choices {
    pub(super) fn new(seed: u64, replay: Option<Vec<u16>>) -> Self {
        let random = mix(seed);
        let bias = match seed % 8 {
            0 => Bias::Uniform,
            1 => Bias::Urgent,
            2 => Bias::Sticky,
            3 => Bias::SlowStreams,
            4 => Bias::SlowHost,
            5 => Bias::Starve(mix(random)),
            6 => Bias::Priorities,
            _ => Bias::Latest,
        };
        Self {
            seed,
            random,
            salt: mix(random),
            bias,
            replay,
            made: Vec::new(),
            lowered: Vec::new(),
            since: Vec::new(),
            urgent: Vec::new(),
        }
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    pub(super) fn made(&self) -> &[u16] {
        &self.made
    }

    /// Marks a stream as one of the highest priority.
    pub(super) fn prefer(&mut self, stream: usize) {
        self.urgent.push(stream);
    }

    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.random)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.next().is_multiple_of(n)
    }

    /// A number below `n`; 0 is the plain choice.
    pub(super) fn number(&mut self, n: usize) -> usize {
        self.choose(n, 0, |choices| choices.below(n))
    }

    fn choose(&mut self, n: usize, plain: usize, by_seed: impl FnOnce(&mut Self) -> usize) -> usize {
        if n < 2 {
            return 0;
        }
        let chosen = match &self.replay {
            Some(replay) => {
                let distance = replay.get(self.made.len()).copied().unwrap_or(0);
                (plain + usize::from(distance)) % n
            }
            None => by_seed(self),
        };
        self.made.push(((chosen + n - plain) % n) as u16);
        chosen
    }

    /// Selects a task. `plain` is the plain choice; `giving_way` is a task that only polls again.
    pub(super) fn task(&mut self, tasks: &[Task], plain: usize, giving_way: Option<Task>) -> usize {
        self.choose(tasks.len(), plain, |choices| choices.by_seed(tasks, plain, giving_way))
    }

    fn by_seed(&mut self, tasks: &[Task], plain: usize, giving_way: Option<Task>) -> usize {
        let all = tasks.len();
        let among = |choices: &mut Self, wanted: &dyn Fn(Task) -> bool| {
            let count = tasks.iter().filter(|&&task| wanted(task)).count();
            if count == 0 || choices.one_in(64) {
                return choices.below(all);
            }
            let nth = choices.below(count);
            let mut wanted = (0..all).filter(|&at| wanted(tasks[at]));
            wanted.nth(nth).unwrap_or(0)
        };
        let not_giving_way = |task: Task| giving_way != Some(task);
        let bias = self.bias;
        match bias {
            Bias::Uniform => self.below(all),
            Bias::Sticky if self.one_in(16) => self.below(all),
            Bias::Sticky => plain,
            Bias::SlowStreams => among(self, &|task| matches!(task, Task::Thread(_)) && not_giving_way(task)),
            Bias::SlowHost => among(self, &|task| matches!(task, Task::Stream(_))),
            Bias::Starve(whom) => {
                among(self, &|task| !mix(task.key() ^ whom).is_multiple_of(3) && not_giving_way(task))
            }
            Bias::Priorities => self.by_priority(tasks, giving_way),
            Bias::Latest => self.latest(tasks, giving_way),
            Bias::Urgent => {
                let of_tasks =
                    |task: &Task| matches!(task, Task::Stream(stream) if self.urgent.contains(stream));
                let urgent: Vec<Task> = tasks.iter().copied().filter(of_tasks).collect();
                among(self, &|task| urgent.contains(&task))
            }
        }
    }

    fn by_priority(&mut self, tasks: &[Task], giving_way: Option<Task>) -> usize {
        let salt = self.salt;
        let rank = |lowered: &[(u64, u64)], task: Task| {
            let lowered = lowered.iter().find(|(key, _)| *key == task.key());
            lowered.map_or(mix(task.key() ^ salt) >> 32, |(_, rank)| *rank)
        };
        if let Some(task) = giving_way {
            self.lower(task);
        }
        let best =
            |lowered: &[(u64, u64)]| (0..tasks.len()).min_by_key(|&at| rank(lowered, tasks[at])).unwrap_or(0);
        let chosen = best(&self.lowered);
        if !self.one_in(16) {
            return chosen;
        }
        self.lower(tasks[chosen]);
        best(&self.lowered)
    }

    /// Gives a task the lowest priority from now on.
    fn lower(&mut self, task: Task) {
        let lowest = self.lowered.iter().map(|(_, rank)| *rank).max().unwrap_or(1 << 32) + 1;
        self.lowered.retain(|(key, _)| *key != task.key());
        self.lowered.push((task.key(), lowest));
    }

    fn latest(&mut self, tasks: &[Task], giving_way: Option<Task>) -> usize {
        let now = self.made.len() as u64 + 1;
        let before = std::mem::take(&mut self.since);
        let since = |task: &Task| {
            let known = before.iter().find(|(key, _)| *key == task.key());
            (task.key(), known.filter(|_| giving_way != Some(*task)).map_or(now, |(_, since)| *since))
        };
        self.since = tasks.iter().map(since).collect();
        if self.one_in(8) {
            return self.below(tasks.len());
        }
        let candidates = (0..tasks.len()).filter(|&at| giving_way != Some(tasks[at]));
        candidates.max_by_key(|&at| self.since[at].1).unwrap_or(0)
    }
}
