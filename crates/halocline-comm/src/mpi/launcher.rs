//! The launcher that started this process, found by its environment variables.

use super::abi::AbiKind;
use super::error::MpiError;
use std::path::PathBuf;

/// The launcher that has started this process as a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Launcher {
    /// Open MPI's mpirun, which speaks PMIx.
    OpenMpi,
    /// One that speaks MPICH's PMI: Hydra, or srun with `--mpi=pmi2`.
    Pmi,
    /// srun, whose variables do not name an MPI.
    Slurm,
    /// An unknown one.
    Unknown,
}

/// The launcher, and the number of ranks that it has started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Started {
    pub by: Launcher,
    /// The number of ranks; 0 if only the library knows it.
    pub ranks: usize,
}

/// The launcher of this process, if there is one.
pub(super) fn started() -> Option<Started> {
    find(|variable| std::env::var(variable).ok())
}

/// As [`started`], from the variables of an environment.
pub(super) fn find(variable: impl Fn(&str) -> Option<String>) -> Option<Started> {
    let number = |name| variable(name)?.parse::<usize>().ok();
    let pmi = number("PMI_SIZE").or(number("PMI_RANK"));
    if let Some(ranks) = number("OMPI_COMM_WORLD_SIZE") {
        // A rank of one launcher has started the other; the order is unknown.
        let by = if pmi.is_none() { Launcher::OpenMpi } else { Launcher::Unknown };
        return Some(Started { by, ranks });
    }
    if let Some(ranks) = number("PMI_SIZE") {
        return Some(Started { by: Launcher::Pmi, ranks });
    }
    // A job sets its variables in all processes, a step only in its tasks. A step of one task is often a shell.
    let step = number("SLURM_STEP_ID").and(number("SLURM_PROCID")).and(number("SLURM_STEP_NUM_TASKS"));
    if let Some(ranks) = step.filter(|&ranks| ranks > 1) {
        return Some(Started { by: Launcher::Slurm, ranks });
    }
    let ranks = ["PMIX_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK"];
    ranks.into_iter().find_map(number).map(|_| Started { by: Launcher::Unknown, ranks: 0 })
}

impl Started {
    /// The error that a library does not know this launcher.
    pub(super) fn mismatch(self, path: PathBuf, kind: AbiKind, obstacle: &'static str) -> MpiError {
        MpiError::OtherLauncher { launched: self.ranks, path, kind, obstacle, advice: self.by.advice() }
    }
}

impl Launcher {
    /// Why ranks of this launcher cannot use a library, if that is known before MPI_Init, which would
    /// end the process. `has_pmix`: it has the functions of PMIx, itself or in a library that it needs.
    pub(super) fn obstacle(self, kind: AbiKind, has_pmix: bool) -> Option<&'static str> {
        // Open MPI initialises as one rank alone under other launchers, or was built for them.
        let is_foreign = self == Self::OpenMpi && kind != AbiKind::OpenMpi && !has_pmix;
        is_foreign.then_some("does not speak PMIx, as Open MPI's mpirun does")
    }

    /// The remedy if a library does not know this launcher.
    pub(super) fn advice(self) -> &'static str {
        match self {
            Self::Slurm => {
                "start the ranks with srun --mpi=... as the library wants it (srun --mpi=list shows the \
                 choice), or give a library in HALOCLINE_MPI that goes with it"
            }
            Self::OpenMpi | Self::Pmi | Self::Unknown => "give the launcher's library in HALOCLINE_MPI",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Option<Started> {
        find(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn launchers_are_found_by_their_variables() {
        let by = |by, ranks| Some(Started { by, ranks });
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("OMPI_COMM_WORLD_SIZE", "3"), ("PMIX_RANK", "0")]), by(Launcher::OpenMpi, 3));
        assert_eq!(of(&[("PMI_SIZE", "4"), ("PMI_RANK", "0")]), by(Launcher::Pmi, 4));
        assert_eq!(of(&[("OMPI_COMM_WORLD_SIZE", "3"), ("PMI_RANK", "0")]), by(Launcher::Unknown, 3));
        assert_eq!(of(&[("PMIX_RANK", "1")]), by(Launcher::Unknown, 0));
        assert_eq!(of(&[("PMI_SIZE", "many")]), None);
    }

    #[test]
    fn a_task_of_srun_is_a_rank_and_a_script_of_sbatch_is_not() {
        let script = [("SLURM_JOB_ID", "7"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")];
        assert_eq!(of(&script), None);
        let step = |tasks| [("SLURM_STEP_ID", "0"), ("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", tasks)];
        assert_eq!(of(&step("4")), Some(Started { by: Launcher::Slurm, ranks: 4 }));
        assert_eq!(of(&step("1")), None);
        let pmix = [&step("4")[..], &[("PMIX_RANK", "1")]].concat();
        assert_eq!(of(&pmix), Some(Started { by: Launcher::Slurm, ranks: 4 }));
        // mpirun within a step: its daemons are the tasks.
        let within = [&step("4")[..], &[("OMPI_COMM_WORLD_SIZE", "8")]].concat();
        assert_eq!(of(&within), Some(Started { by: Launcher::OpenMpi, ranks: 8 }));
        assert!(Launcher::Slurm.advice().contains("srun --mpi="));
    }

    #[test]
    fn the_library_and_the_number_of_ranks_that_were_started_are_named() {
        let started = Started { by: Launcher::Pmi, ranks: 3 };
        let error = started.mismatch("/opt/libmpi.so.40".into(), AbiKind::OpenMpi, "sees this one alone");
        let MpiError::OtherLauncher { launched: 3, path, kind: AbiKind::OpenMpi, advice, .. } = error else {
            panic!("{error}")
        };
        assert_eq!((path, advice), ("/opt/libmpi.so.40".into(), Launcher::Pmi.advice()));
    }

    #[test]
    fn a_library_that_would_end_the_process_is_refused_before_init() {
        let obstacle = |by: Launcher, kind, has_pmix| by.obstacle(kind, has_pmix).is_some();
        assert!(obstacle(Launcher::OpenMpi, AbiKind::Mpich, false));
        assert!(obstacle(Launcher::OpenMpi, AbiKind::Standard, false));
        assert!(!obstacle(Launcher::OpenMpi, AbiKind::Mpich, true));
        assert!(!obstacle(Launcher::OpenMpi, AbiKind::OpenMpi, false));
        assert!(!obstacle(Launcher::Unknown, AbiKind::Mpich, false));
        assert!(!obstacle(Launcher::Pmi, AbiKind::OpenMpi, false));
    }
}
