"""Jobs that sites carry out together, and the one function that runs them on any engine."""

from fedcluster.jobs._execute import JOBS as JOBS
from fedcluster.jobs._execute import check_job as check_job
from fedcluster.jobs._execute import doubts_of as doubts_of
from fedcluster.jobs._execute import execute
from fedcluster.jobs._execute import job_from_json as job_from_json
from fedcluster.jobs._execute import limits_of as limits_of
from fedcluster.jobs._execute import plan_of as plan_of
from fedcluster.jobs._execute import preprocessing_of as preprocessing_of
from fedcluster.jobs._execute import procedure_of as procedure_of
from fedcluster.jobs._execute import steps_of as steps_of
from fedcluster.jobs._execute import within as within
from fedcluster.jobs._kinds import KJob as KJob
from fedcluster.jobs._kinds import model_name as model_name
from fedcluster.jobs._kinds import model_of as model_of
from fedcluster.jobs._kinds import tried as tried
from fedcluster.jobs._procedure import Job as Job
from fedcluster.jobs._procedure import JobReport
from fedcluster.jobs._procedure import clustering_of as clustering_of
from fedcluster.jobs._procedure import drawn as drawn
from fedcluster.jobs._procedure import fitted_preprocessing as fitted_preprocessing
from fedcluster.recipes.specifications import Evaluate, Fit, Profile, SelectK, fit_of

__all__ = ["Evaluate", "Fit", "JobReport", "Profile", "SelectK", "execute", "fit_of"]
