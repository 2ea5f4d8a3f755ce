//! Memory bands: how full the shard's memory is, with hysteresis and dwell.

/// How much of the effective memory budget is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Band {
    /// No effect.
    #[default]
    Normal,
    /// New batches are dropped for refusing outlets more than half full.
    Pressure,
    /// The same beyond a sixteenth.
    Severe,
    /// Nothing new is admitted.
    Saturated,
}

impl Band {
    /// The name used in metrics, scenarios and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Pressure => "pressure",
            Self::Severe => "severe",
            Self::Saturated => "saturated",
        }
    }
}
