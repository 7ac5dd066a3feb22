"""An engine that speaks SGLang's surface with a calibrated timing model."""
