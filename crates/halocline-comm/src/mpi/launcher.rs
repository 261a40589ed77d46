//! The launcher that started this process, as the environment tells it.

use super::abi::AbiKind;
use super::error::MpiError;
use std::path::PathBuf;

/// Who has started this process as a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Launcher {
    /// Open MPI's mpirun, which speaks PMIx.
    OpenMpi,
    /// One that speaks MPICH's PMI: Hydra, or srun with `--mpi=pmi2`.
    Pmi,
    /// srun, which says nothing of MPI.
    Slurm,
    /// One that cannot be told.
    Unknown,
}

/// What a launcher says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Started {
    pub by: Launcher,
    /// How many ranks there are; 0 where the library alone is told.
    pub ranks: usize,
}

/// What the launcher of this process says, if there is one.
pub(super) fn started() -> Option<Started> {
    find(|variable| std::env::var(variable).ok())
}

/// As [`started`], from the variables of an environment.
pub(super) fn find(variable: impl Fn(&str) -> Option<String>) -> Option<Started> {
    let number = |name| variable(name)?.parse::<usize>().ok();
    let pmi = number("PMI_SIZE").or(number("PMI_RANK"));
    if let Some(ranks) = number("OMPI_COMM_WORLD_SIZE") {
        // Of two launchers one was started by a rank of the other; which one cannot be told.
        let by = if pmi.is_none() { Launcher::OpenMpi } else { Launcher::Unknown };
        return Some(Started { by, ranks });
    }
    if let Some(ranks) = number("PMI_SIZE") {
        return Some(Started { by: Launcher::Pmi, ranks });
    }
    // A job has its variables everywhere, a step in its tasks alone. A step of one task is often a shell.
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
    /// Why ranks of this launcher cannot use a library, where that is known before it is initialised: then it
    /// ends the process. `has_pmix`: it has the functions of PMIx, itself or in a library that it needs.
    pub(super) fn obstacle(self, kind: AbiKind, has_pmix: bool) -> Option<&'static str> {
        // Open MPI comes up alone under the others, or was built for them.
        let is_foreign = self == Self::OpenMpi && kind != AbiKind::OpenMpi && !has_pmix;
        is_foreign.then_some("does not speak PMIx, as Open MPI's mpirun does")
    }

    /// What would be right where a library does not know this launcher.
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
    fn launchers_are_told_by_their_variables() {
        let by = |by, ranks| Some(Started { by, ranks });
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("OMPI_COMM_WORLD_SIZE", "3"), ("PMIX_RANK", "0")]), by(Launcher::OpenMpi, 3));
        assert_eq!(of(&[("PMI_SIZE", "4"), ("PMI_RANK", "0")]), by(Launcher::Pmi, 4));
        assert_eq!(of(&[("OMPI_COMM_WORLD_SIZE", "3"), ("PMI_RANK", "0")]), by(Launcher::Unknown, 3));
        assert_eq!(of(&[("PMIX_RANK", "1")]), by(Launcher::Unknown, 0));
        assert_eq!(of(&[("PMI_SIZE", "many")]), None);
    }

    #[test]
    fn a_task_of_srun_is_a_rank_and_a_script_of_sbatch_is_none() {
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
    fn a_library_that_would_end_the_process_is_refused_before() {
        let obstacle = |by: Launcher, kind, has_pmix| by.obstacle(kind, has_pmix).is_some();
        assert!(obstacle(Launcher::OpenMpi, AbiKind::Mpich, false));
        assert!(obstacle(Launcher::OpenMpi, AbiKind::Standard, false));
        assert!(!obstacle(Launcher::OpenMpi, AbiKind::Mpich, true));
        assert!(!obstacle(Launcher::OpenMpi, AbiKind::OpenMpi, false));
        assert!(!obstacle(Launcher::Unknown, AbiKind::Mpich, false));
        assert!(!obstacle(Launcher::Pmi, AbiKind::OpenMpi, false));
    }
}
