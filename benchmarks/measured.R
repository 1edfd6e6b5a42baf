# Rows with known classes, as CSV: columns, class, and with PEERS the labels of mclust and clustCombi.
data <- function(name, from) {
  e <- new.env(); utils::data(list=name, package=from, envir=e); e[[name]]
}
save <- function(name, from, columns, class, as=name) {
  D <- try(data(name, from), silent=TRUE); if (inherits(D, "try-error") || is.null(D)) return()
  y <- do.call(paste, D[class]); X <- D[columns]; ok <- complete.cases(X, D[class])
  X <- X[ok,]; y <- as.integer(factor(y[ok])); peers <- NULL
  if (nzchar(Sys.getenv("PEERS"))) suppressMessages({ library(mclust)
    m <- Mclust(scale(X), G=1:9, verbose=FALSE); peers <- cbind(m$classification, m$classification)
    if (m$G > 1) peers[, 2] <- clustCombiOptim(clustCombi(m), reg=2)$cluster.combi })
  write.table(if (is.null(peers)) cbind(X, y) else cbind(X, y, peers), file.path(commandArgs(TRUE), paste0(as, ".csv")), row.names=FALSE,
    col.names=FALSE, sep=",") }
save("crabs", "MASS", 4:8, 1:2)
save("biopsy", "MASS", 2:10, 11)
save("fgl", "MASS", 1:9, 10)
save("synth.te", "MASS", 1:2, 3)
save("Pima.tr", "MASS", 1:7, 8)
save("banknote", "mclust", 2:7, 1)
save("diabetes", "mclust", 2:4, 1)
save("thyroid", "mclust", 2:6, 1)
save("cross", "mclust", 2:3, 1)
save("chevron", "mclust", 2:3, 1)
save("body", "gclus", 1:24, 25)
save("penguins", "palmerpenguins", 3:6, 1)
save("olive", "dslabs", 3:10, 1)
save("olive", "dslabs", 3:10, 2, "olive, 9 areas")
save("fish", "rrcov", 1:6, 7)
save("olitos", "rrcov", 1:25, 26)
save("hemophilia", "rrcov", 1:2, 3)
save("salmon", "rrcov", 2:3, 4)
save("Vehicle", "mlbench", 1:18, 19)
save("Vowel", "mlbench", 2:10, 11)
save("Sonar", "mlbench", 1:60, 61)
save("iris", "datasets", 1:4, 5)
save("wine", "gclus", 2:14, 1)
