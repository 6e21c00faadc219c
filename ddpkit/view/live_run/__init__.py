"""Loss, throughput and late ranks while a run trains: model, figure, widget."""
